#ifndef SYNCLINE_COMMON_STATE_SHARD_STATE_READER_H_
#define SYNCLINE_COMMON_STATE_SHARD_STATE_READER_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/state/shard_state_stream.h"
#include "google/protobuf/message_lite.h"

namespace syncline {

// Reads the records of a shard's state. It believes no size, order or byte
// before it has checked it, and needs the memory of one record.
// Thread-compatible.
class ShardStateReader {
 public:
  struct Record {
    ShardStateKind kind = ShardStateKind::kTrailer;
    // Borrowed until the next call.
    absl::string_view meta;
    absl::string_view bulk;
  };

  // `source` outlives it.
  explicit ShardStateReader(ShardStateSource* source) : source_(source) {}

  // The next record. The first is the header, and after the trailer the source
  // has ended.
  // Errors, with the source's name and the record's number: the source's;
  // DataLoss: bytes that no writer has written there, or the end before the
  // trailer. Nothing can be read after an error.
  absl::StatusOr<Record> Next();

  // Parses the meta of the record that Next gave last.
  // Errors: DataLoss, as above.
  absl::Status Parse(const Record& record,
                     google::protobuf::MessageLite* meta) const;
  // A DataLoss of the record that Next gave last.
  absl::Status Damage(absl::string_view problem) const;

 private:
  absl::Status Fill(size_t bytes);
  // Reads the sizes that the frame in record_ announces.
  absl::Status CheckFrame(uint32_t kind, uint32_t meta_bytes,
                          uint32_t bulk_bytes) const;
  // OK if nothing follows.
  absl::Status CheckEnd();

  ShardStateSource* const source_;
  uint32_t number_ = 0;    // of the next record
  uint32_t checksum_ = 0;  // of all before it
  std::string record_;
};

}  // namespace syncline

#endif  // SYNCLINE_COMMON_STATE_SHARD_STATE_READER_H_
