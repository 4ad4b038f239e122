// Goal: each block has one owner, loads are even, and each block is in one
// bucket, in the order of backward. Method: models of many shapes, among them
// those whose tensors are a little more than one block for each rank.

#include "worker/peers/block_owners.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline::worker {
namespace {

std::vector<TensorSize> Tensors(const std::vector<int64_t>& sizes) {
  std::vector<TensorSize> tensors;
  for (const int64_t size : sizes) {
    tensors.push_back({absl::StrCat("t", tensors.size()), size});
  }
  return tensors;
}

TEST(BlockOwnersTest, SpreadsEachTensorEvenlyInRuns) {
  Random random(3);
  for (int round = 0; round < 200; ++round) {
    std::vector<int64_t> sizes;
    const auto ranks = static_cast<uint32_t>(1 + random.Below(5));
    for (uint64_t t = 1 + random.Below(30); t > 0; --t) {
      // Often a little more than a block for each rank.
      sizes.push_back(static_cast<int64_t>(random.Below(2) == 0
                                               ? 1024 * ranks - 1000
                                               : 1 + random.Below(20000)));
    }
    const BlockMap map = *OwnedBlocks(Tensors(sizes), ranks);
    const BlockMap same = *BlockMap::Create(Tensors(sizes), 1);
    ASSERT_EQ(map.blocks().size(), same.blocks().size()) << "cut as for ps";
    int64_t block = 0;
    for (const Block& of : map.blocks()) block = std::max(block, of.count);
    int64_t least = map.element_count(), most = 0;
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      least = std::min(least, map.shard_elements(rank));
      most = std::max(most, map.shard_elements(rank));
    }
    EXPECT_LE(most - least, 2 * block) << "round " << round;
    for (uint32_t t = 0; t < sizes.size(); ++t) {
      std::set<uint32_t> left;
      uint32_t last = ~0u;
      for (const uint32_t id : map.tensor_blocks(t)) {
        const uint32_t owner = map.blocks()[id].shard;
        if (owner == last) continue;
        EXPECT_TRUE(left.insert(owner).second) << "two runs of one rank";
        last = owner;
      }
    }
  }
}

TEST(BlockOwnersTest, PutsEachBlockIntoOneBucketOfItsOwner) {
  Random random(5);
  for (int round = 0; round < 100; ++round) {
    std::vector<int64_t> sizes;
    std::vector<uint32_t> first_use;
    for (uint64_t t = 1 + random.Below(12); t > 0; --t) {
      sizes.push_back(static_cast<int64_t>(1 + random.Below(20000)));
      first_use.push_back(static_cast<uint32_t>(random.Below(9)));
    }
    const BlockMap map =
        *OwnedBlocks(Tensors(sizes), 1 + static_cast<uint32_t>(round % 4));
    const BucketSizes limits = {.worth = 1000, .most = 4000};
    std::set<uint32_t> seen;
    for (const Bucket& bucket : MakeBuckets(map, first_use, limits)) {
      size_t elements = 0;
      uint32_t use = ~0u;
      ASSERT_EQ(bucket.blocks.size(), bucket.offsets.size());
      for (size_t i = 0; i < bucket.blocks.size(); ++i) {
        const Block& block = map.blocks()[bucket.blocks[i]];
        EXPECT_TRUE(seen.insert(bucket.blocks[i]).second);
        EXPECT_EQ(block.shard, bucket.owner);
        EXPECT_EQ(bucket.offsets[i], elements);
        elements += block.count;
        use = std::min(use, first_use[block.tensor]);
      }
      EXPECT_EQ(bucket.elements, elements);
      EXPECT_EQ(bucket.first_use, use);
      EXPECT_TRUE(elements <= limits.most || bucket.blocks.size() == 1);
    }
    EXPECT_EQ(seen.size(), map.blocks().size());
  }
}

// The last layers are done first.
TEST(BlockOwnersTest, BucketsLeaveInTheOrderOfBackward) {
  const BlockMap map = *OwnedBlocks(Tensors({4000, 10, 4000, 10}), 2);
  const std::vector<Bucket> buckets =
      MakeBuckets(map, {0, 1, 2, 3}, {.worth = 500, .most = 4000});
  ASSERT_EQ(buckets.size(), 4u);
  EXPECT_EQ(buckets[0].first_use, 2u);
  EXPECT_EQ(buckets[1].first_use, 2u);
  EXPECT_EQ(buckets[2].first_use, 0u);
  EXPECT_EQ(buckets[3].first_use, 0u);
}

TEST(BlockOwnersTest, RefusesWhatABlockMapRefuses) {
  EXPECT_FALSE(OwnedBlocks(Tensors({0}), 2).ok());
}

}  // namespace
}  // namespace syncline::worker
