#ifndef SYNCLINE_SERVER_SHARD_LAYOUT_H_
#define SYNCLINE_SERVER_SHARD_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/wire/block_map.h"
#include "proto/parameter_server.pb.h"
#include "server/shard_call.h"

namespace syncline {

// The blocks of one shard, and what of a call's header may be believed: ids
// that are this shard's, sizes that fit. Everything a peer sends goes through
// here. Immutable, hence thread-safe.
class ShardLayout {
 public:
  ShardLayout(BlockMap map, uint32_t shard);

  const BlockMap& map() const { return map_; }
  uint32_t shard() const { return shard_; }
  // Elements and global id of each block, by BlockIndex.
  absl::Span<const size_t> counts() const { return counts_; }
  absl::Span<const uint32_t> ids() const { return map_.shard_blocks(shard_); }

  // Errors of all three: InvalidArgument, naming field and value.
  //
  // `payload_bytes` must be exactly the named blocks'.
  absl::StatusOr<std::vector<BlockIndex>> CheckInit(const InitHeader& header,
                                                    size_t payload_bytes) const;
  absl::StatusOr<PushFacts> CheckPush(const PushHeader& header,
                                      size_t payload_bytes) const;
  // The values must fit into one message.
  absl::StatusOr<PullFacts> CheckPull(const PullHeader& header) const;

  // Where each block starts in a payload of these blocks, in elements; then
  // the end.
  std::vector<size_t> Offsets(absl::Span<const BlockIndex> blocks) const;

 private:
  absl::StatusOr<std::vector<BlockIndex>> Indices(
      absl::Span<const uint32_t> ids) const;
  absl::Status CheckPayload(absl::Span<const BlockIndex> blocks,
                            size_t payload_bytes) const;
  size_t Elements(absl::Span<const BlockIndex> blocks) const;

  const BlockMap map_;
  const uint32_t shard_;
  std::vector<size_t> counts_;
  std::vector<BlockIndex> index_of_;  // by global id; kNotHere
};

}  // namespace syncline

#endif  // SYNCLINE_SERVER_SHARD_LAYOUT_H_
