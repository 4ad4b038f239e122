#ifndef SYNCLINE_COMMON_UPDATE_NORM_BLOCKS_H_
#define SYNCLINE_COMMON_UPDATE_NORM_BLOCKS_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/wire/block_map.h"
#include "common/wire/table_map.h"

namespace syncline {

// The ids by which owners name their blocks and slots to a NormReducer: those
// of BlockMap, then the slots of tables, numbered on from the last block, all
// slots of one table before those of the next. The order of the ids is the
// order in which norms are added up, so it depends on the model alone.

// Those of one owner, a shard of the maps, ascending.
std::vector<uint32_t> NormBlocksOf(const BlockMap& map,
                                   absl::Span<const TableMap> tables,
                                   uint32_t owner);

// The tensor of each block, by id.
std::vector<uint32_t> TensorsOfBlocks(const BlockMap& map);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_UPDATE_NORM_BLOCKS_H_
