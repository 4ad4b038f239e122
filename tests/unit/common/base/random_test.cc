// Goal: the sequences are the published ones (results depend on them), the
// distributions are what they claim, entropy differs.
// Method: SplitMix64's reference values; moments with fixed seeds.

#include "common/base/random.h"

#include <cmath>

#include "gtest/gtest.h"

namespace syncline {
namespace {

TEST(RandomTest, IsSplitMix64) {
  Random random(1234567);
  EXPECT_EQ(random.Next(), 6457827717110365317ull);
  EXPECT_EQ(random.Next(), 3203168211198807973ull);
  EXPECT_EQ(random.Next(), 9817491932198370423ull);
}

TEST(RandomTest, BelowStaysBelowAndReachesAll) {
  Random random(1);
  int seen[7] = {};
  for (int i = 0; i < 7000; ++i) {
    const uint64_t value = random.Below(7);
    ASSERT_LT(value, 7u);
    ++seen[value];
  }
  for (const int count : seen) EXPECT_NEAR(count, 1000, 150);
}

TEST(RandomTest, NormalHasItsMoments) {
  Random random(1);
  constexpr int kCount = 100000;
  double sum = 0;
  double squares = 0;
  double fourths = 0;
  for (int i = 0; i < kCount; ++i) {
    const double value = random.Normal();
    ASSERT_TRUE(std::isfinite(value));
    sum += value;
    squares += value * value;
    fourths += value * value * value * value;
  }
  EXPECT_NEAR(sum / kCount, 0, 0.02);
  EXPECT_NEAR(squares / kCount, 1, 0.02);
  EXPECT_NEAR(fourths / kCount, 3, 0.15);
}

TEST(RandomTest, SubStreamsDiffer) {
  EXPECT_NE(SeedFor(1, 0), SeedFor(1, 1));
  EXPECT_NE(SeedFor(1, 0), SeedFor(0, 1));
}

TEST(RandomTest, EntropyIsNeverZeroAndDiffers) {
  const uint64_t first = EntropySeed();
  EXPECT_NE(first, 0u);
  EXPECT_NE(first, EntropySeed());
}

TEST(RandomTest, NamesHaveTheirNumbers) {
  EXPECT_EQ(HashName(""), 0xcbf29ce484222325ull);
  EXPECT_EQ(HashName("a"), 0xaf63dc4c8601ec8cull);  // FNV's own test vector
  EXPECT_NE(HashName("ab"), HashName("ba"));
}

}  // namespace
}  // namespace syncline
