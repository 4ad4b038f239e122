#ifndef SYNCLINE_COMMON_STATE_SHARD_STATE_WRITER_H_
#define SYNCLINE_COMMON_STATE_SHARD_STATE_WRITER_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/state/shard_state_stream.h"
#include "google/protobuf/message_lite.h"

namespace syncline {

// Makes the records of one shard's state and hands them to a sink.
// Thread-compatible.
class ShardStateWriter {
 public:
  // `sink` outlives it.
  explicit ShardStateWriter(ShardStateSink* sink) : sink_(sink) {}

  // Errors: the sink's; ResourceExhausted: more meta than a record may have.
  // After an error the state is not whole, and nothing more can be written.
  // REQUIRES: at most kShardStateBulkMax bytes of bulk.
  absl::Status Write(ShardStateKind kind,
                     const google::protobuf::MessageLite& meta,
                     absl::string_view bulk);

 private:
  ShardStateSink* const sink_;
  uint32_t number_ = 0;
  uint32_t checksum_ = 0;
  std::string head_;  // kept for reuse
};

}  // namespace syncline

#endif  // SYNCLINE_COMMON_STATE_SHARD_STATE_WRITER_H_
