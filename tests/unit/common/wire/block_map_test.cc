// Goal: the block map covers every element exactly once, cuts the same way
// whatever the number of shards, and balances them.
// Method: properties over seeded random models, plus drawn examples.

#include "common/wire/block_map.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kSeeds = 300;
constexpr int64_t kMiBElements = (1 << 20) / 4;

// Sizes over six orders of magnitude: biases next to embedding tables.
std::vector<TensorSize> RandomModel(Random* random) {
  std::vector<TensorSize> tensors(1 + random->Below(40));
  for (size_t i = 0; i < tensors.size(); ++i) {
    const int64_t bound = int64_t{1} << random->Below(22);
    tensors[i] = {absl::StrCat("t", i),
                  1 + static_cast<int64_t>(random->Below(bound))};
  }
  return tensors;
}

BlockMap MustCreate(const std::vector<TensorSize>& tensors, uint32_t shards) {
  absl::StatusOr<BlockMap> map = BlockMap::Create(tensors, shards);
  EXPECT_TRUE(map.ok()) << map.status();
  return *std::move(map);
}

TEST(BlockMapTest, EveryElementIsInExactlyOneBlockInOrder) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed=", seed));
    Random random(seed);
    const std::vector<TensorSize> tensors = RandomModel(&random);
    const BlockMap map = MustCreate(tensors, 1 + random.Below(8));
    uint32_t id = 0;
    int64_t total = 0;
    for (uint32_t tensor = 0; tensor < tensors.size(); ++tensor) {
      int64_t next = 0;
      for (const uint32_t block : map.tensor_blocks(tensor)) {
        ASSERT_EQ(block, id++);
        ASSERT_EQ(map.blocks()[block].tensor, tensor);
        ASSERT_EQ(map.blocks()[block].offset, next);
        ASSERT_GT(map.blocks()[block].count, 0);
        ASSERT_LE(map.blocks()[block].count, kMiBElements);
        next += map.blocks()[block].count;
      }
      ASSERT_EQ(next, tensors[tensor].element_count);
      total += next;
    }
    ASSERT_EQ(id, map.blocks().size());
    ASSERT_EQ(total, map.element_count());
  }
}

TEST(BlockMapTest, ShardsListTheirBlocksAscending) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed=", seed));
    Random random(seed);
    const BlockMap map = MustCreate(RandomModel(&random), 1 + random.Below(8));
    size_t listed = 0;
    for (uint32_t shard = 0; shard < map.shard_count(); ++shard) {
      int64_t elements = 0;
      ASSERT_TRUE(std::is_sorted(map.shard_blocks(shard).begin(),
                                 map.shard_blocks(shard).end()));
      for (const uint32_t id : map.shard_blocks(shard)) {
        ASSERT_EQ(map.blocks()[id].shard, shard);
        elements += map.blocks()[id].count;
      }
      ASSERT_EQ(elements, map.shard_elements(shard));
      listed += map.shard_blocks(shard).size();
    }
    ASSERT_EQ(listed, map.blocks().size());
  }
}

TEST(BlockMapTest, LoadsAreWithinFivePercentOrOneBlock) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed=", seed));
    Random random(seed);
    const uint32_t shards = 1 + random.Below(16);
    const BlockMap map = MustCreate(RandomModel(&random), shards);
    int64_t least = map.element_count();
    int64_t most = 0;
    int64_t block = 0;
    for (uint32_t shard = 0; shard < shards; ++shard) {
      least = std::min(least, map.shard_elements(shard));
      most = std::max(most, map.shard_elements(shard));
    }
    for (const Block& b : map.blocks()) block = std::max(block, b.count);
    ASSERT_LE(most - least,
              std::max<int64_t>(block, map.element_count() / shards / 20));
  }
}

TEST(BlockMapTest, CuttingDoesNotDependOnTheNumberOfShards) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed=", seed));
    Random random(seed);
    const std::vector<TensorSize> tensors = RandomModel(&random);
    const BlockMap one = MustCreate(tensors, 1);
    const BlockMap many = MustCreate(tensors, 2 + random.Below(9));
    ASSERT_EQ(one.blocks().size(), many.blocks().size());
    for (size_t id = 0; id < one.blocks().size(); ++id) {
      ASSERT_EQ(one.blocks()[id].tensor, many.blocks()[id].tensor);
      ASSERT_EQ(one.blocks()[id].offset, many.blocks()[id].offset);
      ASSERT_EQ(one.blocks()[id].count, many.blocks()[id].count);
    }
  }
}

TEST(BlockMapTest, IsAPureFunction) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed=", seed));
    Random random(seed);
    const std::vector<TensorSize> tensors = RandomModel(&random);
    const uint32_t shards = 1 + random.Below(8);
    const BlockMap a = MustCreate(tensors, shards);
    const BlockMap b = MustCreate(tensors, shards);
    ASSERT_EQ(a.blocks().size(), b.blocks().size());
    for (size_t id = 0; id < a.blocks().size(); ++id) {
      ASSERT_EQ(a.blocks()[id].shard, b.blocks()[id].shard);
    }
  }
}

TEST(BlockMapTest, BlockSizeFollowsTheModel) {
  // 203,530 elements: 3.2 KB a 256th, one step of 4 KiB.
  const BlockMap small =
      MustCreate({{"w1", 784 * 256}, {"b1", 256}, {"w2", 2560}, {"b2", 10}}, 2);
  EXPECT_EQ(small.blocks()[0].count, 1024);
  EXPECT_EQ(small.blocks().size(), 196u + 1 + 3 + 1);
  // 64 Mi elements are 256 MiB: exactly the largest block.
  const BlockMap edge = MustCreate({{"w", 64 << 20}}, 1);
  EXPECT_EQ(edge.blocks().size(), 256u);
  EXPECT_EQ(edge.blocks()[0].count, kMiBElements);
  // Beyond that blocks do not grow.
  const BlockMap large = MustCreate({{"w", (128 << 20) + 1}}, 1);
  EXPECT_EQ(large.blocks().size(), 513u);
  EXPECT_EQ(large.blocks().back().count, 1);
}

TEST(BlockMapTest, MoreShardsThanBlocksLeavesSomeEmpty) {
  const BlockMap map = MustCreate({{"a", 3}, {"b", 7}}, 4);
  EXPECT_THAT(map.shard_blocks(0), ElementsAre(1));  // largest first
  EXPECT_THAT(map.shard_blocks(1), ElementsAre(0));
  EXPECT_THAT(map.shard_blocks(2), ElementsAre());
  EXPECT_EQ(map.shard_elements(3), 0);
}

TEST(BlockMapTest, NoTensorsAreNoBlocks) {
  const absl::StatusOr<BlockMap> map = BlockMap::Create({}, 3);
  ASSERT_TRUE(map.ok()) << map.status();
  EXPECT_EQ(map->shard_count(), 3u);
  EXPECT_TRUE(map->blocks().empty());
  EXPECT_TRUE(map->shard_blocks(2).empty());
  EXPECT_EQ(map->shard_elements(2), 0);
}

TEST(BlockMapTest, RefusesWhatCannotBePlaced) {
  const auto message = [](std::vector<TensorSize> tensors, uint32_t shards) {
    const absl::Status status = BlockMap::Create(tensors, shards).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(message({{"a", 1}}, 0), HasSubstr("no ps"));
  EXPECT_THAT(message({{"a", 1}, {"b", 0}}, 1),
              HasSubstr("tensor b has 0 elements"));
  EXPECT_THAT(message({{"a", -5}}, 1), HasSubstr("-5 elements"));
  EXPECT_THAT(message({{"a", INT64_MAX}}, 1), HasSubstr("tensor a: more than"));
  EXPECT_THAT(message({{"a", INT64_MAX / 8}, {"b", INT64_MAX / 8}}, 1),
              HasSubstr("tensor b: more than"));
  EXPECT_THAT(message({{"a", int64_t{1} << 59}}, 1), HasSubstr("blocks"));
  // Refused before a map of 6 GiB is made.
  EXPECT_THAT(message({{"a", int64_t{1} << 46}}, 1),
              HasSubstr("needs 268435456 blocks, at most 4194304"));
}

}  // namespace
}  // namespace syncline
