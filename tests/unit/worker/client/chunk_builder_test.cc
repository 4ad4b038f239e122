// Goal: every block of a step leaves in exactly one message, in a message its
// shard can read, as early and as large as the limits allow.
// Method: block maps of random shapes; the properties are checked over all
// chunks of a step.

#include "worker/client/chunk_builder.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

BlockMap MakeMap(const std::vector<int64_t>& counts, uint32_t shards) {
  std::vector<TensorSize> tensors;
  for (const int64_t count : counts) {
    tensors.push_back({absl::StrCat("t", tensors.size()), count});
  }
  return *BlockMap::Create(tensors, shards);
}

std::vector<Chunk> BackwardStep(const BlockMap& map, ChunkBuilder* builder,
                                size_t tensor_count) {
  std::vector<Chunk> chunks;
  for (size_t i = tensor_count; i-- > 0;) {
    for (Chunk& chunk : builder->Add(static_cast<uint32_t>(i))) {
      chunks.push_back(std::move(chunk));
    }
  }
  for (Chunk& chunk : builder->Flush()) chunks.push_back(std::move(chunk));
  return chunks;
}

TEST(ChunkBuilderTest, WhatIsWorthAMessageLeavesWithItsTensor) {
  constexpr int64_t kWorth = ChunkBuilder::kWorthSending / sizeof(float);
  const BlockMap map = MakeMap({3 * kWorth, kWorth, kWorth - 100}, 1);
  ChunkBuilder builder(&map, 1 << 20);
  EXPECT_THAT(builder.Add(2), IsEmpty()) << "too little yet";
  EXPECT_THAT(builder.Add(1), SizeIs(1)) << "both together";
  EXPECT_THAT(builder.Add(0), SizeIs(1));
  EXPECT_THAT(builder.Flush(), IsEmpty());
}

TEST(ChunkBuilderTest, EveryBlockTravelsOnceAndChunksKeepTheirLimit) {
  Random random(7);
  for (int round = 0; round < 50; ++round) {
    SCOPED_TRACE(absl::StrCat("round=", round));
    std::vector<int64_t> counts(1 + random.Below(9));
    for (int64_t& count : counts) {
      count = static_cast<int64_t>(1 + random.Below(300'000));
    }
    const auto shards = static_cast<uint32_t>(1 + random.Below(4));
    const BlockMap map = MakeMap(counts, shards);
    const size_t limit = 4096 + random.Below(1 << 20);
    ChunkBuilder builder(&map, limit);
    const auto chunks = BackwardStep(map, &builder, counts.size());

    std::set<uint32_t> seen;
    for (const Chunk& chunk : chunks) {
      ASSERT_THAT(chunk.blocks, ::testing::Not(IsEmpty()));
      EXPECT_TRUE(std::is_sorted(chunk.blocks.begin(), chunk.blocks.end()));
      size_t bytes = 0;
      for (const uint32_t id : chunk.blocks) {
        EXPECT_TRUE(seen.insert(id).second) << "block " << id << " twice";
        EXPECT_EQ(map.blocks()[id].shard, chunk.shard);
        bytes += static_cast<size_t>(map.blocks()[id].count) * sizeof(float);
      }
      EXPECT_EQ(bytes, chunk.bytes);
      EXPECT_TRUE(bytes <= limit || chunk.blocks.size() == 1) << bytes;
    }
    EXPECT_THAT(seen, SizeIs(map.blocks().size()));
  }
}

TEST(ChunkBuilderTest, SmallTensorsShareAMessage) {
  const BlockMap map = MakeMap({10, 10, 10}, 1);
  ChunkBuilder builder(&map, 1 << 20);
  EXPECT_THAT(builder.Add(2), IsEmpty());
  EXPECT_THAT(builder.Add(1), IsEmpty());
  EXPECT_THAT(builder.Add(0), IsEmpty());
  const std::vector<Chunk> rest = builder.Flush();
  ASSERT_THAT(rest, SizeIs(1));
  EXPECT_THAT(rest[0].blocks, ElementsAre(0, 1, 2));
  EXPECT_EQ(rest[0].bytes, 120u);
}

TEST(ChunkBuilderTest, AFullChunkLeavesBeforeTheEnd) {
  const BlockMap map = MakeMap({4096, 4096}, 1);
  ChunkBuilder builder(&map, 4096 * sizeof(float));
  EXPECT_THAT(builder.Add(1), IsEmpty());
  EXPECT_THAT(builder.Add(0), SizeIs(1)) << "tensor 1 is complete";
}

TEST(ChunkBuilderTest, StartsOverAfterFlush) {
  const BlockMap map = MakeMap({50'000, 3}, 2);
  ChunkBuilder builder(&map, 8192);
  const auto first = BackwardStep(map, &builder, 2);
  const auto second = BackwardStep(map, &builder, 2);
  ASSERT_EQ(first.size(), second.size());
  for (size_t i = 0; i < first.size(); ++i) {
    EXPECT_EQ(first[i].blocks, second[i].blocks);
  }
}

TEST(ChunkBuilderTest, AddShardListsAllBlocksOfTheShardInOrder) {
  const BlockMap map = MakeMap({50'000, 3, 70'000}, 3);
  for (uint32_t shard = 0; shard < 3; ++shard) {
    ChunkBuilder builder(&map, 16384);
    auto chunks = builder.AddShard(shard);
    for (Chunk& rest : builder.Flush()) chunks.push_back(std::move(rest));
    std::vector<uint32_t> blocks;
    for (const Chunk& chunk : chunks) {
      EXPECT_EQ(chunk.shard, shard);
      blocks.insert(blocks.end(), chunk.blocks.begin(), chunk.blocks.end());
    }
    EXPECT_THAT(blocks, ::testing::ElementsAreArray(map.shard_blocks(shard)));
  }
}

TEST(ToRunsTest, NeighboursOfOneTensorBecomeOneRun) {
  const BlockMap map = MakeMap({3000, 100}, 1);  // blocks 0, 1, 2 and 3
  ASSERT_THAT(map.blocks(), SizeIs(4));
  const auto runs = ToRuns(map, {0, 1, 2, 3});
  ASSERT_THAT(runs, SizeIs(2));
  EXPECT_EQ(runs[0].tensor, 0u);
  EXPECT_EQ(runs[0].offset, 0);
  EXPECT_EQ(runs[0].count, 3000);
  EXPECT_EQ(runs[1].tensor, 1u);
  EXPECT_EQ(runs[1].count, 100);
}

TEST(ToRunsTest, AGapSplits) {
  const BlockMap map = MakeMap({3000}, 1);
  const auto runs = ToRuns(map, {0, 2});
  ASSERT_THAT(runs, SizeIs(2));
  EXPECT_EQ(runs[1].offset, map.blocks()[2].offset);
  EXPECT_EQ(runs[1].count, map.blocks()[2].count);
}

TEST(ChunkBuilderTest, ALimitIsOfOneShard) {
  const BlockMap map = MakeMap({1 << 20}, 2);
  ChunkBuilder builder(&map, 64 << 10);
  builder.SetChunkBytesMax(1, 256 << 10);
  for (const Chunk& chunk : BackwardStep(map, &builder, 1)) {
    EXPECT_EQ(chunk.bytes, (chunk.shard == 1 ? 256u : 64u) << 10);
  }
}

// The same bytes a message: twice the elements.
TEST(ChunkBuilderTest, ElementsMayTravelInTwoBytes) {
  const BlockMap map = MakeMap({1 << 20}, 1);
  ChunkBuilder wide(&map, 64 << 10);
  ChunkBuilder narrow(&map, 64 << 10, 2);
  const std::vector<Chunk> chunks = BackwardStep(map, &narrow, 1);
  EXPECT_EQ(2 * chunks.size(), BackwardStep(map, &wide, 1).size());
  size_t bytes = 0;
  for (const Chunk& chunk : chunks) bytes += chunk.bytes;
  EXPECT_EQ(bytes, size_t{2} << 20);
}

// A header of a message has room for some thousand blocks (common/wire/frame).
TEST(ChunkBuilderTest, ManyTinyTensorsTravelInSeveralChunks) {
  constexpr size_t kTensors = 20'000;
  const BlockMap map = MakeMap(std::vector<int64_t>(kTensors, 1), 1);
  ChunkBuilder builder(&map, 1 << 20);
  size_t blocks = 0;
  for (const Chunk& chunk : BackwardStep(map, &builder, kTensors)) {
    EXPECT_LE(chunk.blocks.size(), ChunkBuilder::kBlocksMax);
    blocks += chunk.blocks.size();
  }
  EXPECT_EQ(blocks, kTensors);
}

}  // namespace
}  // namespace syncline::worker
