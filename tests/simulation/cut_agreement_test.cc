// Goal: shards that workers have passed at different clocks agree on cuts, and
// each agreed cut is one consistent state.
// Method: seeded histories of real consistency controllers and coordinators;
// cut_simulation.h lists what is checked in each. A failure prints the seed.

#include "gtest/gtest.h"
#include "tests/simulation/cut_simulation.h"
#include "tests/testing/seed_count.h"

namespace syncline {
namespace {

constexpr int kSeeds = SeedCount(3400);  // of each mode

void ExpectAllSeedsAgree(ConsistencyMode mode) {
  CutSimulationResult sum;
  for (int seed = 1; seed <= kSeeds; ++seed) {
    const CutSimulationResult result =
        SimulateCuts({.seed = static_cast<uint64_t>(seed), .mode = mode});
    ASSERT_EQ(result.broken, "") << "seed=" << seed;
    sum.agreed += result.agreed;
    sum.raised += result.raised;
    sum.given_up += result.given_up;
  }
  ::testing::Test::RecordProperty("agreed", sum.agreed);
  ::testing::Test::RecordProperty("raised", sum.raised);
  ::testing::Test::RecordProperty("given_up", sum.given_up);
  // The histories have what they are about.
  EXPECT_GT(sum.raised, sum.agreed / 5);
  EXPECT_GT(sum.given_up, kSeeds / 50);
}

TEST(CutAgreementSimulation, InSync) {
  ExpectAllSeedsAgree(ConsistencyMode::kSync);
}

TEST(CutAgreementSimulation, InBoundedStaleness) {
  ExpectAllSeedsAgree(ConsistencyMode::kBoundedStaleness);
}

TEST(CutAgreementSimulation, InAsync) {
  ExpectAllSeedsAgree(ConsistencyMode::kAsync);
}

}  // namespace
}  // namespace syncline
