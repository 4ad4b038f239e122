// Goal: the consistency controller keeps the promises of each mode in every
// history, not in examples.
// Method: thousands of seeded histories with lost, late, duplicated and
// reordered messages; shard_simulation.h lists what is checked in each. A
// failure prints the seed, which replays it.

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/simulation/shard_simulation.h"
#include "tests/testing/seed_count.h"

namespace syncline {
namespace {

constexpr int kSeeds = SeedCount(1000);

void ExpectAllSeedsKeepTheRules(SimulationOptions options) {
  for (int seed = 1; seed <= kSeeds; ++seed) {
    options.seed = seed;
    ASSERT_EQ(SimulateShard(options), "") << "seed=" << seed;
  }
}

TEST(ConsistencyControllerSimulation, SyncIsTheSerialFoldInRankOrder) {
  ExpectAllSeedsKeepTheRules({.mode = ps::ConsistencyMode::kSync});
}

TEST(ConsistencyControllerSimulation, SyncWithClippedNormIsTheSerialFold) {
  ExpectAllSeedsKeepTheRules(
      {.mode = ps::ConsistencyMode::kSync, .clip_norm = true});
}

TEST(ConsistencyControllerSimulation, SspIsNeverStalerAndNeverWaitsInVain) {
  ExpectAllSeedsKeepTheRules({.mode = ps::ConsistencyMode::kBoundedStaleness});
}

TEST(ConsistencyControllerSimulation, AsyncLosesAndDuplicatesNothing) {
  ExpectAllSeedsKeepTheRules({.mode = ps::ConsistencyMode::kAsync});
}

TEST(ConsistencyControllerSimulation, AsyncWithNormsLosesNothing) {
  ExpectAllSeedsKeepTheRules(
      {.mode = ps::ConsistencyMode::kAsync, .clip_norm = true});
}

TEST(ConsistencyControllerSimulation, CutsAreConsistentInSync) {
  ExpectAllSeedsKeepTheRules(
      {.mode = ps::ConsistencyMode::kSync, .cuts = true});
}

TEST(ConsistencyControllerSimulation, CutsAreConsistentInSyncWithNorms) {
  ExpectAllSeedsKeepTheRules(
      {.mode = ps::ConsistencyMode::kSync, .clip_norm = true, .cuts = true});
}

TEST(ConsistencyControllerSimulation, CutsAreConsistentInSsp) {
  ExpectAllSeedsKeepTheRules(
      {.mode = ps::ConsistencyMode::kBoundedStaleness, .cuts = true});
}

TEST(ConsistencyControllerSimulation, CutsAreConsistentInAsync) {
  ExpectAllSeedsKeepTheRules(
      {.mode = ps::ConsistencyMode::kAsync, .cuts = true});
}

TEST(ConsistencyControllerSimulation, ClosingEndsEveryCall) {
  for (const ps::ConsistencyMode mode :
       {ps::ConsistencyMode::kSync, ps::ConsistencyMode::kBoundedStaleness,
        ps::ConsistencyMode::kAsync}) {
    SCOPED_TRACE(absl::StrCat("mode=", static_cast<int>(mode)));
    ExpectAllSeedsKeepTheRules(
        {.mode = mode, .cuts = true, .close_early = true});
  }
}

}  // namespace
}  // namespace syncline
