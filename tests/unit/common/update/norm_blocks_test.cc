// Goal: owners together name every block and slot once, in an order that does
// not depend on their number.
// Method: maps for one owner and for several.

#include "common/update/norm_blocks.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

using ::testing::ElementsAre;

BlockMap MapOf(uint32_t owners) {
  return *BlockMap::Create({TensorSize{"a", 5000}, TensorSize{"b", 7}}, owners);
}

TEST(NormBlocksTest, OwnersHaveEachBlockAndSlotOnce) {
  for (const uint32_t owners : {1u, 2u, 3u, 5u}) {
    const BlockMap map = MapOf(owners);
    const std::vector<TableMap> tables = {*TableMap::Create(64, owners),
                                          *TableMap::Create(256, owners)};
    std::vector<uint32_t> all;
    for (uint32_t owner = 0; owner < owners; ++owner) {
      const std::vector<uint32_t> own = NormBlocksOf(map, tables, owner);
      EXPECT_TRUE(std::is_sorted(own.begin(), own.end()));
      all.insert(all.end(), own.begin(), own.end());
    }
    std::sort(all.begin(), all.end());
    std::vector<uint32_t> expected(map.blocks().size() + 64 + 256);
    std::iota(expected.begin(), expected.end(), 0);
    EXPECT_EQ(all, expected);
  }
}

TEST(NormBlocksTest, SlotsComeBehindTheBlocksTableByTable) {
  const BlockMap map = MapOf(2);
  const std::vector<TableMap> tables = {*TableMap::Create(2, 2),
                                        *TableMap::Create(4, 2)};
  const std::vector<uint32_t> own = NormBlocksOf(map, tables, 1);
  const uint32_t blocks = static_cast<uint32_t>(map.blocks().size());
  const std::vector<uint32_t> slots(own.begin() + map.shard_blocks(1).size(),
                                    own.end());
  EXPECT_THAT(slots, ElementsAre(blocks + 1, blocks + 2 + 2, blocks + 2 + 3));
}

TEST(NormBlocksTest, ScatteredSlotsKeepTheirIds) {
  const BlockMap map = MapOf(2);
  const std::vector<uint32_t> shards = {1, 0, 0, 1};
  const std::vector<TableMap> tables = {*TableMap::Create(4, 2, shards)};
  const uint32_t blocks = static_cast<uint32_t>(map.blocks().size());
  const std::vector<uint32_t> own = NormBlocksOf(map, tables, 1);
  const std::vector<uint32_t> slots(own.begin() + map.shard_blocks(1).size(),
                                    own.end());
  EXPECT_THAT(slots, ElementsAre(blocks + 0, blocks + 3));
}

TEST(NormBlocksTest, EachBlockHasItsTensor) {
  EXPECT_THAT(TensorsOfBlocks(MapOf(1)), ElementsAre(0, 0, 0, 0, 0, 1));
  EXPECT_EQ(TensorsOfBlocks(MapOf(1)), TensorsOfBlocks(MapOf(3)));
}

}  // namespace
}  // namespace syncline
