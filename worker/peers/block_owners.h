#ifndef SYNCLINE_WORKER_PEERS_BLOCK_OWNERS_H_
#define SYNCLINE_WORKER_PEERS_BLOCK_OWNERS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/wire/block_map.h"

namespace syncline::worker {

// Which rank of a job without ps reduces which block, and which blocks travel
// together. Pure functions, so all ranks compute the same. Bits do not depend
// on either: blocks are cut as for any number of ps, and each is reduced in the
// order of ranks.

// The blocks of `tensors` with their owners: Block::shard is a rank. Each
// tensor is spread over the ranks, in one run of neighbouring blocks a rank, so
// that all ranks have something to reduce at each time of the backward pass;
// what does not divide goes to the ranks that have least so far. So loads
// differ by at most two blocks. Errors: BlockMap::Create's.
absl::StatusOr<BlockMap> OwnedBlocks(absl::Span<const TensorSize> tensors,
                                     uint32_t ranks);

// Blocks of one owner that share a message, each way.
struct Bucket {
  uint32_t owner = 0;
  std::vector<uint32_t> blocks;  // ids, in the order of the payload
  std::vector<size_t> offsets;   // by block: its first element in the payload
  size_t elements = 0;
  // When a step first reads one of its tensors.
  uint32_t first_use = 0;
};

// A bucket is full at `most` elements, and leaves with the tensor that makes it
// worth a message, at `worth`.
struct BucketSizes {
  size_t worth = (256 << 10) / sizeof(float);
  size_t most = (1 << 20) / sizeof(float);
};

// The buckets of all owners, in the order in which they leave: backward
// finishes last what forward reads first. `first_use`: by tensor; empty: in the
// order of tensors. Each block is in one bucket; one larger than `most` has a
// bucket of its own.
std::vector<Bucket> MakeBuckets(const BlockMap& map,
                                absl::Span<const uint32_t> first_use,
                                const BucketSizes& sizes = {});

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_PEERS_BLOCK_OWNERS_H_
