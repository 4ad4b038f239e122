// Goal: buffers that are alive at the same step never share a byte, every
// offset is aligned, and the arena is no larger than all buffers and no smaller
// than the busiest step. Method: random lifetimes checked against the
// definition, and examples.

#include "common/model/graph/memory_plan.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/seed_count.h"

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

// Empty, or two buffers that overlap in time and in memory.
std::string FindOverlap(const std::vector<BufferLifetime>& buffers,
                        const MemoryPlan& plan) {
  std::vector<size_t> by_use(buffers.size());
  std::iota(by_use.begin(), by_use.end(), size_t{0});
  std::stable_sort(by_use.begin(), by_use.end(), [&](size_t a, size_t b) {
    return buffers[a].first_use < buffers[b].first_use;
  });
  std::set<std::pair<int32_t, size_t>> alive;  // last use, buffer
  std::map<int64_t, size_t> taken;             // offset -> buffer
  const auto end_of = [&](size_t i) {
    return plan.offsets[i] + buffers[i].size_bytes;
  };
  for (const size_t i : by_use) {
    while (!alive.empty() && alive.begin()->first < buffers[i].first_use) {
      taken.erase(plan.offsets[alive.begin()->second]);
      alive.erase(alive.begin());
    }
    const auto next = taken.lower_bound(plan.offsets[i]);
    if (next != taken.end() && next->first < end_of(i)) {
      return absl::StrCat(i, " and ", next->second);
    }
    if (next != taken.begin() &&
        end_of(std::prev(next)->second) > plan.offsets[i]) {
      return absl::StrCat(i, " and ", std::prev(next)->second);
    }
    taken[plan.offsets[i]] = i;
    alive.insert({buffers[i].last_use, i});
  }
  return "";
}

TEST(MemoryPlanTest, ManyBuffersDoNotOverlapEither) {
  for (int seed = 1; seed <= SeedCount(3); ++seed) {
    SCOPED_TRACE(absl::StrCat("seed=", seed));
    Random random(seed);
    std::vector<BufferLifetime> buffers(kPlannedBySizeMax + 1);
    for (BufferLifetime& buffer : buffers) {
      buffer.size_bytes = 1 + static_cast<int64_t>(random.Below(100'000));
      buffer.first_use = static_cast<int32_t>(random.Below(20'000));
      buffer.last_use =
          buffer.first_use + static_cast<int32_t>(random.Below(100));
    }
    buffers[0].offset = 640;
    buffers[1].offset = 640 + Aligned(buffers[0].size_bytes);
    const MemoryPlan plan = PlanMemory(buffers);
    EXPECT_EQ(FindOverlap(buffers, plan), "");
    std::vector<int64_t> busy(20'200);
    for (size_t i = 0; i < buffers.size(); ++i) {
      EXPECT_EQ(plan.offsets[i] % kPlanAlignmentBytes, 0);
      EXPECT_LE(plan.offsets[i] + buffers[i].size_bytes, plan.arena_bytes);
      for (int t = buffers[i].first_use; t <= buffers[i].last_use; ++t) {
        busy[t] += Aligned(buffers[i].size_bytes);
      }
    }
    // Fragments cost some memory, not a multiple of it.
    EXPECT_LT(static_cast<double>(plan.arena_bytes),
              1.5 * static_cast<double>(*absl::c_max_element(busy)));
  }
}

// A training step of many nodes: activations that live until the backward pass,
// and their gradients. Comparing each with all others would take minutes.
TEST(MemoryPlanTest, APlanOfManyNodesIsNotQuadratic) {
  constexpr int32_t kNodes = 150'000;
  std::vector<BufferLifetime> buffers;
  for (int32_t i = 0; i < kNodes; ++i) {
    buffers.push_back({64 + 64 * (i % 7), i, 2 * kNodes - i});
    buffers.push_back({64, 2 * kNodes - i, 2 * kNodes - i + 1});
  }
  const MemoryPlan plan = PlanMemory(buffers);
  EXPECT_EQ(FindOverlap(buffers, plan), "");
  EXPECT_LT(plan.arena_bytes, int64_t{64} * 9 * kNodes);
}

TEST(MemoryPlanTest, RandomLifetimes) {
  for (int seed = 1; seed <= SeedCount(2000); ++seed) {
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
