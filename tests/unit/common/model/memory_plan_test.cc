// Goal: buffers that are alive at the same step never share a byte, every
// offset is aligned, and the arena is no larger than all buffers and no smaller
// than the busiest step. Method: random lifetimes checked against the
// definition, and examples.

#include "common/model/memory_plan.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

int64_t Aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }

TEST(MemoryPlanTest, NoBuffersNeedNoArena) {
  EXPECT_EQ(PlanMemory({}).arena_bytes, 0);
  const BufferLifetime empty[] = {{0, 0, 5}, {0, 2, 3}};
  EXPECT_EQ(PlanMemory(empty).arena_bytes, 0);
  EXPECT_THAT(PlanMemory(empty).offsets, Each(0));
}

TEST(MemoryPlanTest, AChainNeedsTwoBuffers) {
  // Each step reads the previous buffer and writes the next.
  std::vector<BufferLifetime> chain;
  for (int i = 0; i < 10; ++i) chain.push_back({640, i, i + 1});
  EXPECT_EQ(PlanMemory(chain).arena_bytes, 2 * 640);
}

TEST(MemoryPlanTest, ASmallBufferTakesTheSmallestGap) {
  const BufferLifetime buffers[] = {
      {1024, 0, 9},  // at 0
      {512, 0, 1},   // at 1024, leaves a gap at steps above 1
      {256, 0, 9},   // at 1536
      {128, 0, 1},   // at 1792
      {128, 0, 9},   // at 1920
      {100, 5, 6},   // fits both gaps; the one at 1792 is exactly 128 wide
  };
  EXPECT_THAT(PlanMemory(buffers).offsets,
              ElementsAre(0, 1024, 1536, 1792, 1920, 1792));
}

TEST(MemoryPlanTest, WhatHasItsPlaceIsPlannedAround) {
  const BufferLifetime buffers[] = {
      {256, 0, 3},      // over the first fixed one, which is not there yet
      {256, 0, 4},      // behind it
      {64, 4, 9, 128},  // fixed
      {128, 5, 9},      // before it: just room
      {64, 0, 9, 512},  // fixed
      {192, 2, 2},      // nothing is free before the second fixed one
  };
  const MemoryPlan plan = PlanMemory(buffers);
  EXPECT_THAT(plan.offsets, ElementsAre(0, 256, 128, 0, 512, 576));
  EXPECT_EQ(plan.arena_bytes, 576 + 192);
}

TEST(MemoryPlanTest, RandomLifetimes) {
  for (uint64_t seed = 1; seed <= 2000; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed=", seed));
    Random random(seed);
    std::vector<BufferLifetime> buffers(random.Below(30));
    for (BufferLifetime& buffer : buffers) {
      buffer.size_bytes = static_cast<int64_t>(random.Below(1000));
      buffer.first_use = static_cast<int32_t>(random.Below(20));
      buffer.last_use =
          buffer.first_use + static_cast<int32_t>(random.Below(10));
    }
    // Two that have their place, apart from each other.
    const bool some_fixed = seed % 2 == 0;
    for (size_t i = 0; some_fixed && i < buffers.size() && i < 2; ++i) {
      buffers[i].offset = static_cast<int64_t>(1024 * i);
    }
    const MemoryPlan plan = PlanMemory(buffers);
    ASSERT_EQ(plan.offsets.size(), buffers.size());

    int64_t sum = 0;
    int64_t peak = 0;
    for (int step = 0; step < 30; ++step) {
      int64_t alive = 0;
      for (const BufferLifetime& b : buffers) {
        if (b.first_use <= step && step <= b.last_use) {
          alive += Aligned(b.size_bytes);
        }
      }
      peak = std::max(peak, alive);
    }
    for (size_t i = 0; i < buffers.size(); ++i) {
      sum += Aligned(buffers[i].size_bytes);
      EXPECT_EQ(plan.offsets[i] % 64, 0);
      EXPECT_GE(plan.offsets[i], 0);
      EXPECT_LE(plan.offsets[i] + buffers[i].size_bytes, plan.arena_bytes);
      for (size_t k = 0; k < i; ++k) {
        const bool together = buffers[i].first_use <= buffers[k].last_use &&
                              buffers[k].first_use <= buffers[i].last_use;
        const bool apart =
            plan.offsets[i] + buffers[i].size_bytes <= plan.offsets[k] ||
            plan.offsets[k] + buffers[k].size_bytes <= plan.offsets[i];
        EXPECT_TRUE(!together || apart) << i << " and " << k;
      }
    }
    EXPECT_LE(plan.arena_bytes, some_fixed ? sum + 2048 : sum);
    EXPECT_GE(plan.arena_bytes, peak);
  }
}

}  // namespace
}  // namespace syncline
