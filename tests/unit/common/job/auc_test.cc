// Goal: the area is exact, ties included. Method: known orders, and random
// scores against brute force over all pairs.

#include "common/job/auc.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

using ::testing::DoubleEq;
using ::testing::Optional;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(AucTest, KnownOrders) {
  EXPECT_THAT(Auc({3, 4}, {1, 2}), Optional(1.0));
  EXPECT_THAT(Auc({1, 2}, {3, 4}), Optional(0.0));
  EXPECT_THAT(Auc({5, 5}, {5}), Optional(0.5));
  EXPECT_THAT(Auc({2, 4}, {1, 3}), Optional(0.75));
  EXPECT_THAT(Auc({kInfinity, 0}, {-kInfinity}), Optional(1.0));
  EXPECT_EQ(Auc({}, {1}), std::nullopt);
  EXPECT_EQ(Auc({1}, {}), std::nullopt);
}

TEST(AucTest, EqualsBruteForceOverAllPairs) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed=", seed));
    Random random(seed);
    const uint64_t levels = 1 + random.Below(30);  // few levels make many ties
    std::vector<float> scores[2] = {{0}, {0}};
    for (uint64_t i = random.Below(100); i > 0; --i) {
      scores[random.Below(2)].push_back(random.Below(levels) - 7.0f);
    }
    double right = 0;
    for (const float p : scores[1]) {
      for (const float n : scores[0]) right += p > n ? 1 : p == n ? 0.5 : 0;
    }
    EXPECT_THAT(
        Auc(scores[1], scores[0]),
        Optional(DoubleEq(right / scores[0].size() / scores[1].size())));
  }
}

}  // namespace
}  // namespace syncline
