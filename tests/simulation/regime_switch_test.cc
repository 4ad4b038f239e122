// Goal: a job whose mode changes while it runs loses no gradient and applies
// none twice, and all shards and workers change at the same clock, or none.
// Method: seeded histories of real consistency controllers and a coordinator;
// regime_switch_simulation.h lists what is checked in each. A failure prints
// the seed.

#include "gtest/gtest.h"
#include "tests/simulation/regime_switch_simulation.h"
#include "tests/testing/seed_count.h"

namespace syncline {
namespace {

constexpr int kSeeds = SeedCount(10'000);

TEST(RegimeSwitchSimulation, NothingIsLostOrDoubled) {
  RegimeSwitchResult sum;
  for (int seed = 1; seed <= kSeeds; ++seed) {
    const RegimeSwitchResult result =
        SimulateRegimeSwitches(static_cast<uint64_t>(seed));
    ASSERT_EQ(result.broken, "") << "seed=" << seed;
    sum.made += result.made;
    sum.given_up += result.given_up;
    sum.unequal += result.unequal;
  }
  ::testing::Test::RecordProperty("made", sum.made);
  ::testing::Test::RecordProperty("given_up", sum.given_up);
  ::testing::Test::RecordProperty("unequal", sum.unequal);
  // The histories have what they are about.
  EXPECT_GT(sum.made, kSeeds / 2);
  EXPECT_GT(sum.given_up, kSeeds / 10);
  EXPECT_GT(sum.unequal, kSeeds / 10);
}

}  // namespace
}  // namespace syncline
