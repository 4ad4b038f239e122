// Goal: whatever happens to its daemons, its users and itself, the scheduler
// keeps its promises: one job per member, first in first out, a job with a lost
// member fails at once, no member is lost that lives and comes back in time,
// every job ends, every member is freed, states only move forward within an
// attempt, attempts do not mix, and a start is on disk before it is told.
// Method: many seeded histories in simulated time; the promises are checked
// after every event.

#include "scheduler/core/cluster/cluster_core.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "tests/simulation/cluster_simulation.h"
#include "tests/testing/seed_count.h"

namespace syncline {
namespace {

constexpr int kSeeds = SeedCount(1000);
constexpr int kRetrySeeds = SeedCount(300);

TEST(ClusterCoreSimulation, PromisesAreKeptInEveryHistory) {
  int succeeded = 0;
  int failed = 0;
  int cancelled = 0;
  int losses = 0;
  int restarts = 0;
  int freezes = 0;
  int outlived_freezes = 0;
  int repeated = 0;
  for (int seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed=", seed));
    ClusterSimulation simulation(seed);
    simulation.Run();
    ASSERT_TRUE(simulation.violations().empty())
        << absl::StrJoin(simulation.violations(), "\n");
    ASSERT_GE(simulation.submitted(), 6);
    succeeded += simulation.ended_in(SUCCEEDED);
    failed += simulation.ended_in(FAILED);
    cancelled += simulation.ended_in(CANCELLED);
    losses += simulation.losses();
    restarts += simulation.restarts();
    freezes += simulation.freezes();
    outlived_freezes += simulation.outlived_freezes();
    repeated += simulation.repeated_messages();
  }
  // The histories are neither too kind nor too cruel to show anything.
  EXPECT_GT(succeeded, 2 * kSeeds);
  EXPECT_GT(failed, kSeeds);
  EXPECT_GT(cancelled, 2 * kSeeds / 5);
  EXPECT_GT(losses, 2 * kSeeds);
  EXPECT_GT(restarts, 2 * kSeeds / 5);
  EXPECT_GT(freezes, 2 * kSeeds / 5);
  EXPECT_GT(outlived_freezes, kSeeds / 20);
  EXPECT_GT(repeated, 2 * kSeeds);
}

TEST(ClusterCoreSimulation, AttemptsFollowOneAnother) {
  int succeeded = 0;
  int retried = 0;
  int late = 0;
  for (int seed = 1; seed <= kRetrySeeds; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed=", seed));
    ClusterSimulation simulation(seed, /*attempts_max=*/3);
    simulation.Run();
    ASSERT_TRUE(simulation.violations().empty())
        << absl::StrJoin(simulation.violations(), "\n");
    succeeded += simulation.ended_in(SUCCEEDED);
    retried += simulation.retried();
    late += simulation.late_messages();
  }
  EXPECT_GT(succeeded, 3 * kRetrySeeds);
  EXPECT_GT(retried, kRetrySeeds / 2);
  EXPECT_GT(late, kRetrySeeds / 20);
}

}  // namespace
}  // namespace syncline
