#include "common/update/norm_blocks.h"

namespace syncline {

std::vector<uint32_t> NormBlocksOf(const BlockMap& map,
                                   absl::Span<const TableMap> tables,
                                   uint32_t owner) {
  const absl::Span<const uint32_t> dense = map.shard_blocks(owner);
  std::vector<uint32_t> blocks(dense.begin(), dense.end());
  uint32_t first = static_cast<uint32_t>(map.blocks().size());
  for (const TableMap& table : tables) {
    for (const uint32_t slot : table.shard_slots(owner)) {
      blocks.push_back(first + slot);
    }
    first += table.slots();
  }
  return blocks;
}

std::vector<uint32_t> TensorsOfBlocks(const BlockMap& map) {
  std::vector<uint32_t> tensors;
  for (const Block& block : map.blocks()) tensors.push_back(block.tensor);
  return tensors;
}

}  // namespace syncline
