#include "worker/client/chunk_builder.h"

#include <algorithm>
#include <utility>

namespace syncline::worker {
namespace {

// Tensors become ready in backward order, messages list blocks in ascending
// order.
Chunk Take(Chunk* open) {
  Chunk chunk = std::move(*open);
  *open = Chunk{.shard = chunk.shard};
  std::sort(chunk.blocks.begin(), chunk.blocks.end());
  return chunk;
}

}  // namespace

std::vector<BlockRun> ToRuns(const BlockMap& map,
                             absl::Span<const uint32_t> blocks) {
  std::vector<BlockRun> runs;
  for (const uint32_t id : blocks) {
    const Block& block = map.blocks()[id];
    if (!runs.empty() && runs.back().tensor == block.tensor &&
        runs.back().offset + runs.back().count == block.offset) {
      runs.back().count += block.count;
    } else {
      runs.push_back({block.tensor, block.offset, block.count});
    }
  }
  return runs;
}

ChunkBuilder::ChunkBuilder(const BlockMap* map, size_t chunk_bytes_max,
                           size_t element_bytes)
    : map_(*map),
      element_bytes_(element_bytes),
      chunk_bytes_max_(map->shard_count(), chunk_bytes_max),
      open_(map->shard_count()) {
  for (uint32_t shard = 0; shard < map->shard_count(); ++shard) {
    open_[shard].shard = shard;
  }
}

std::vector<Chunk> ChunkBuilder::Add(uint32_t tensor) {
  std::vector<Chunk> full;
  for (const uint32_t id : map_.tensor_blocks(tensor)) AddBlock(id, &full);
  for (Chunk& open : open_) {
    if (open.bytes >= kWorthSending) full.push_back(Take(&open));
  }
  return full;
}

std::vector<Chunk> ChunkBuilder::AddShard(uint32_t shard) {
  std::vector<Chunk> full;
  for (const uint32_t id : map_.shard_blocks(shard)) AddBlock(id, &full);
  return full;
}

std::vector<Chunk> ChunkBuilder::Flush() {
  std::vector<Chunk> rest;
  for (Chunk& open : open_) {
    if (!open.blocks.empty()) rest.push_back(Take(&open));
  }
  return rest;
}

void ChunkBuilder::AddBlock(uint32_t id, std::vector<Chunk>* full) {
  const Block& block = map_.blocks()[id];
  const size_t bytes = static_cast<size_t>(block.count) * element_bytes_;
  Chunk& open = open_[block.shard];
  if (open.blocks.size() == kBlocksMax ||
      (!open.blocks.empty() &&
       open.bytes + bytes > chunk_bytes_max_[block.shard])) {
    full->push_back(Take(&open));
  }
  open.blocks.push_back(id);
  open.bytes += bytes;
}

}  // namespace syncline::worker
