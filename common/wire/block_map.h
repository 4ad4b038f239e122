#ifndef SYNCLINE_COMMON_WIRE_BLOCK_MAP_H_
#define SYNCLINE_COMMON_WIRE_BLOCK_MAP_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace syncline {

// A parameter tensor as far as placement cares.
struct TensorSize {
  std::string name;
  int64_t element_count = 0;  // float32 elements, > 0
};

// A contiguous range of one tensor: the unit of placement, of exactly-once and
// of an optimizer step. Never larger than 1 MiB.
struct Block {
  uint32_t tensor = 0;  // index into the tensors
  int64_t offset = 0;   // first element within the tensor
  int64_t count = 0;    // elements, > 0
  uint32_t shard = 0;   // rank of the ps that owns it
};

// Cuts dense tensors into blocks and places them on shards. A pure function of
// its arguments, so every member computes the same map. The cutting does not
// depend on the shards, so results do not either. Immutable after Create, hence
// thread-safe.
//
// Block size: min(1 MiB, model bytes / 256 rounded up to 4 KiB). Blocks are
// numbered in (tensor, offset) order. Default placement: largest first to the
// least loaded shard, ties to the lower shard, so loads differ by at most one
// block. A routing may place them in any other way
// (common/wire/routing_table.h).
class BlockMap {
 public:
  // Errors: InvalidArgument: no tensor, a tensor without elements, no shard, or
  // more than 2^31 blocks.
  static absl::StatusOr<BlockMap> Create(absl::Span<const TensorSize> tensors,
                                         uint32_t shard_count);
  // `block_shards`: the shard of each block; empty: the default placement.
  // Errors: as above, or InvalidArgument: not one shard for each block, or a
  // shard that does not exist.
  static absl::StatusOr<BlockMap> Create(
      absl::Span<const TensorSize> tensors, uint32_t shard_count,
      absl::Span<const uint32_t> block_shards);

  // All blocks; the index is the block id.
  absl::Span<const Block> blocks() const { return blocks_; }
  // Ids of the blocks of one shard or one tensor, ascending.
  absl::Span<const uint32_t> shard_blocks(uint32_t shard) const {
    return shard_blocks_[shard];
  }
  absl::Span<const uint32_t> tensor_blocks(uint32_t tensor) const {
    return tensor_blocks_[tensor];
  }
  uint32_t shard_count() const {
    return static_cast<uint32_t>(shard_blocks_.size());
  }
  int64_t element_count() const { return element_count_; }
  int64_t shard_elements(uint32_t shard) const {
    return shard_elements_[shard];
  }

 private:
  std::vector<Block> blocks_;
  std::vector<std::vector<uint32_t>> shard_blocks_;
  std::vector<std::vector<uint32_t>> tensor_blocks_;
  std::vector<int64_t> shard_elements_;
  int64_t element_count_ = 0;
};

}  // namespace syncline

#endif  // SYNCLINE_COMMON_WIRE_BLOCK_MAP_H_
