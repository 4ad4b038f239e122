#ifndef SYNCLINE_WORKER_CLIENT_CHUNK_BUILDER_H_
#define SYNCLINE_WORKER_CLIENT_CHUNK_BUILDER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/wire/block_map.h"

namespace syncline::worker {

// The blocks of one message.
struct Chunk {
  uint32_t shard = 0;
  std::vector<uint32_t> blocks = {};  // ascending, of `shard`
  size_t bytes = 0;                   // of their values, as they travel
};

// Neighbouring blocks of one tensor: contiguous in memory as well as in a
// message, so one slice or one copy covers them.
struct BlockRun {
  uint32_t tensor = 0;
  int64_t offset = 0;  // first element within the tensor
  int64_t count = 0;   // elements
};

// `blocks` (ascending) as the fewest runs, in the order of the message.
std::vector<BlockRun> ToRuns(const BlockMap& map,
                             absl::Span<const uint32_t> blocks);

// Groups the blocks of tensors, as these become ready, into chunks: one open
// chunk per shard, so that small tensors share messages and big ones leave
// while others are still computed. A function of the calls alone; every worker
// of a job that computes the same graph cuts the same chunks.
// Thread-compatible.
class ChunkBuilder {
 public:
  // Two lists of this many block ids fit into a header (common/wire/frame.h).
  static constexpr size_t kBlocksMax = 4096;

  // Bytes that are worth a message of their own while the next tensor is
  // computed: their transfer takes as long as the fixed cost of a call, 0.27
  // ms.
  static constexpr size_t kWorthSending = 256 << 10;

  // Chunks have at most `chunk_bytes_max` bytes, or one block if that is
  // larger, and at most kBlocksMax blocks. `map` outlives the builder. An
  // element takes `element_bytes` in a message.
  ChunkBuilder(const BlockMap* map, size_t chunk_bytes_max,
               size_t element_bytes = sizeof(float));

  // Another limit for the chunks of one shard. REQUIRES: none of them is open.
  void SetChunkBytesMax(uint32_t shard, size_t chunk_bytes_max) {
    chunk_bytes_max_[shard] = chunk_bytes_max;
  }

  // Another size of elements. REQUIRES: no chunk is open.
  void SetElementBytes(size_t element_bytes) { element_bytes_ = element_bytes; }
  size_t element_bytes() const { return element_bytes_; }

  // Adds all blocks of `tensor`. Returns the chunks that are full, or worth
  // sending.
  std::vector<Chunk> Add(uint32_t tensor);
  // Adds all blocks of `shard`. Returns the chunks that are full.
  std::vector<Chunk> AddShard(uint32_t shard);
  // Returns what is left, and starts over.
  std::vector<Chunk> Flush();

 private:
  void AddBlock(uint32_t block, std::vector<Chunk>* full);

  const BlockMap& map_;
  size_t element_bytes_;
  std::vector<size_t> chunk_bytes_max_;  // by shard
  std::vector<Chunk> open_;              // by shard
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_CLIENT_CHUNK_BUILDER_H_
