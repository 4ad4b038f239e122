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
  ExpectAllSeedsKeepTheRules({.mode = ConsistencyMode::kSync});
}

TEST(ConsistencyControllerSimulation, SyncWithClippedNormIsTheSerialFold) {
  ExpectAllSeedsKeepTheRules(
      {.mode = ConsistencyMode::kSync, .clip_norm = true});
}

TEST(ConsistencyControllerSimulation, SspIsNeverStalerAndNeverWaitsInVain) {
  ExpectAllSeedsKeepTheRules({.mode = ConsistencyMode::kBoundedStaleness});
}

TEST(ConsistencyControllerSimulation, AsyncLosesAndDuplicatesNothing) {
  ExpectAllSeedsKeepTheRules({.mode = ConsistencyMode::kAsync});
}

TEST(ConsistencyControllerSimulation, AsyncWithNormsLosesNothing) {
  ExpectAllSeedsKeepTheRules(
      {.mode = ConsistencyMode::kAsync, .clip_norm = true});
}

TEST(ConsistencyControllerSimulation, CutsAreConsistentInSync) {
  ExpectAllSeedsKeepTheRules({.mode = ConsistencyMode::kSync, .cuts = true});
}

TEST(ConsistencyControllerSimulation, CutsAreConsistentInSyncWithNorms) {
  ExpectAllSeedsKeepTheRules(
      {.mode = ConsistencyMode::kSync, .clip_norm = true, .cuts = true});
}

TEST(ConsistencyControllerSimulation, CutsAreConsistentInSsp) {
  ExpectAllSeedsKeepTheRules(
      {.mode = ConsistencyMode::kBoundedStaleness, .cuts = true});
}

TEST(ConsistencyControllerSimulation, CutsAreConsistentInAsync) {
  ExpectAllSeedsKeepTheRules({.mode = ConsistencyMode::kAsync, .cuts = true});
}

// --- Regimes -----------------------------------------------------------------

constexpr ConsistencyMode kModes[] = {ConsistencyMode::kSync,
                                      ConsistencyMode::kBoundedStaleness,
                                      ConsistencyMode::kAsync};

TEST(ConsistencyControllerSimulation, BoundsAndRatesChangeFromClockToClock) {
  ExpectAllSeedsKeepTheRules({.mode = ConsistencyMode::kAsync, .changes = 4});
  ExpectAllSeedsKeepTheRules(
      {.mode = ConsistencyMode::kBoundedStaleness, .changes = 4, .cuts = true});
}

TEST(ConsistencyControllerSimulation, RatesChangeInSync) {
  ExpectAllSeedsKeepTheRules({.mode = ConsistencyMode::kSync, .changes = 4});
}

TEST(ConsistencyControllerSimulation, SyncComesAndGoesAndNothingIsLost) {
  for (const ConsistencyMode mode : kModes) {
    SCOPED_TRACE(absl::StrCat("mode=", static_cast<int>(mode)));
    ExpectAllSeedsKeepTheRules({.mode = mode, .changes = 6, .mixed = true});
  }
}

TEST(ConsistencyControllerSimulation, SyncWithNormsComesAndGoes) {
  for (const ConsistencyMode mode : kModes) {
    SCOPED_TRACE(absl::StrCat("mode=", static_cast<int>(mode)));
    ExpectAllSeedsKeepTheRules(
        {.mode = mode, .changes = 6, .mixed = true, .clip_norm = true});
  }
}

TEST(ConsistencyControllerSimulation, CutsAreConsistentWhereRegimesChange) {
  for (const ConsistencyMode mode : kModes) {
    SCOPED_TRACE(absl::StrCat("mode=", static_cast<int>(mode)));
    ExpectAllSeedsKeepTheRules({.mode = mode,
                                .changes = 6,
                                .mixed = true,
                                .clip_norm = true,
                                .cuts = true});
  }
}

TEST(ConsistencyControllerSimulation, ClosingEndsEveryCall) {
  for (const ConsistencyMode mode : kModes) {
    SCOPED_TRACE(absl::StrCat("mode=", static_cast<int>(mode)));
    ExpectAllSeedsKeepTheRules({.mode = mode,
                                .changes = 3,
                                .mixed = true,
                                .cuts = true,
                                .close_early = true});
  }
}

}  // namespace
}  // namespace syncline
