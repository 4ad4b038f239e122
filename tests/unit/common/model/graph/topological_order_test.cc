// Goal: nodes come after what they need, an ordered graph stays as it is, and a
// cycle is reported as one that really exists.
// Method: examples, and random graphs checked against the definition.

#include "common/model/graph/topological_order.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Predecessors = std::vector<std::vector<int>>;

TEST(TopologicalOrderTest, Examples) {
  EXPECT_THAT(SortTopologically(Predecessors{}).order, IsEmpty());
  // In order already; 1 and 2 are independent.
  EXPECT_THAT(SortTopologically(Predecessors{{}, {0}, {0}, {1, 2, 2}}).order,
              ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(SortTopologically(Predecessors{{2}, {0}, {}}).order,
              ElementsAre(2, 0, 1));
  EXPECT_THAT(SortTopologically(Predecessors{{0}}).cycle, ElementsAre(0));
  // 0 leads into the cycle 1 -> 3 -> 2 -> 1 and 4 hangs off it.
  const TopologicalOrder cyclic =
      SortTopologically(Predecessors{{}, {0, 2}, {3}, {1}, {2}});
  EXPECT_THAT(cyclic.order, ElementsAre(0));
  EXPECT_THAT(cyclic.cycle, ElementsAre(1, 3, 2));
}

TEST(TopologicalOrderTest, RandomGraphs) {
  int cycles = 0;
  for (uint64_t seed = 1; seed <= 2000; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed=", seed));
    Random random(seed);
    const int count = 1 + static_cast<int>(random.Below(8));
    Predecessors predecessors(count);
    for (uint64_t e = random.Below(12); e > 0; --e) {
      predecessors[random.Below(count)].push_back(
          static_cast<int>(random.Below(count)));
    }
    const TopologicalOrder result = SortTopologically(predecessors);
    const auto needs = [&](int node, int other) {
      return std::count(predecessors[node].begin(), predecessors[node].end(),
                        other) > 0;
    };
    if (result.cycle.empty()) {
      std::vector<int> position(count, -1);
      for (int i = 0; i < count; ++i) position[result.order.at(i)] = i;
      for (int node = 0; node < count; ++node) {
        ASSERT_GE(position[node], 0);
        for (int p : predecessors[node]) {
          EXPECT_LT(position[p], position[node]);
        }
      }
      continue;
    }
    ++cycles;
    for (size_t i = 0; i < result.cycle.size(); ++i) {
      EXPECT_TRUE(
          needs(result.cycle[(i + 1) % result.cycle.size()], result.cycle[i]));
    }
  }
  EXPECT_GT(cycles, 100);
}

}  // namespace
}  // namespace syncline
