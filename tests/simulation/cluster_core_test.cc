// Goal: whatever happens to its daemons, its users and itself, the scheduler
// keeps its promises: one job per member, first in first out, a job with a lost
// member fails at once, no member is lost that lives and comes back in time,
// every job ends, every member is freed, states only move forward within an
// attempt, attempts do not mix, each begins at the last checkpoint that is
// whole and readable, a start is on disk before it is told, a job whose
// checkpoints are evaluated ends behind the last of them, and a scheduler
// that dies and comes back finds its jobs where they are. Method: many seeded
// histories in simulated time; the promises are checked after every event.

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
constexpr int kElasticSeeds = SeedCount(300);
constexpr int kReattachSeeds = SeedCount(10000);

TEST(ClusterCoreSimulation, PromisesAreKeptInEveryHistory) {
  int succeeded = 0;
  int failed = 0;
  int cancelled = 0;
  int losses = 0;
  int restarts = 0;
  int outlived_restarts = 0;
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
    outlived_restarts += simulation.outlived_restarts();
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
  EXPECT_GT(outlived_restarts, kSeeds / 10);
  EXPECT_GT(freezes, 2 * kSeeds / 5);
  EXPECT_GT(outlived_freezes, kSeeds / 20);
  EXPECT_GT(repeated, 2 * kSeeds);
}

// The scheduler dies at any moment, and again while its members come back, in
// any order, some not at all.
TEST(ClusterCoreSimulation, ARestartedSchedulerFindsItsJobsRunning) {
  int succeeded = 0;
  int restarts = 0;
  int outlived = 0;
  int retried = 0;
  for (int seed = 1; seed <= kReattachSeeds; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed=", seed));
    ClusterSimulation simulation(seed, /*attempts_max=*/1 + seed % 3,
                                 /*restarts_often=*/true);
    simulation.Run();
    ASSERT_TRUE(simulation.violations().empty())
        << absl::StrJoin(simulation.violations(), "\n");
    succeeded += simulation.ended_in(SUCCEEDED);
    restarts += simulation.restarts();
    outlived += simulation.outlived_restarts();
    retried += simulation.retried();
  }
  EXPECT_GT(succeeded, kReattachSeeds);
  EXPECT_GT(restarts, kReattachSeeds);
  EXPECT_GT(outlived, kReattachSeeds / 4);
  EXPECT_GT(retried, kReattachSeeds / 20);
}

// Workers that are lost, come back, and are asked for: each attempt has as many
// as it may have, a clock keeps its samples, jobs that wait come first, and no
// move counts as a restart.
TEST(ClusterCoreSimulation, ElasticJobsGoOnWithTheWorkersThatAreFree) {
  int succeeded = 0;
  int scaled = 0;
  int short_ones = 0;
  int grown = 0;
  int moved = 0;
  int outlived = 0;
  for (int seed = 1; seed <= kElasticSeeds; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed=", seed));
    ClusterSimulation simulation(seed, /*attempts_max=*/3,
                                 /*restarts_often=*/false, /*elastic=*/true);
    simulation.Run();
    ASSERT_TRUE(simulation.violations().empty())
        << absl::StrJoin(simulation.violations(), "\n");
    succeeded += simulation.ended_in(SUCCEEDED);
    scaled += simulation.scaled();
    short_ones += simulation.begun_short();
    grown += simulation.grown();
    moved += simulation.moved();
    outlived += simulation.outlived();
  }
  EXPECT_GT(succeeded, 2 * kElasticSeeds);
  EXPECT_GT(outlived, kElasticSeeds / 20);
  EXPECT_GT(scaled, kElasticSeeds);
  EXPECT_GT(short_ones, kElasticSeeds / 8);
  EXPECT_GT(grown, kElasticSeeds / 8);
  EXPECT_GT(moved, kElasticSeeds / 8);
}

TEST(ClusterCoreSimulation, AttemptsFollowOneAnother) {
  int succeeded = 0;
  int retried = 0;
  int late = 0;
  int resumed = 0;
  int unreadable = 0;
  int scored = 0;
  int not_scored = 0;
  int ended_scored = 0;
  for (int seed = 1; seed <= kRetrySeeds; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed=", seed));
    ClusterSimulation simulation(seed, /*attempts_max=*/3);
    simulation.Run();
    ASSERT_TRUE(simulation.violations().empty())
        << absl::StrJoin(simulation.violations(), "\n");
    succeeded += simulation.ended_in(SUCCEEDED);
    retried += simulation.retried();
    late += simulation.late_messages();
    resumed += simulation.resumed();
    unreadable += simulation.unreadable();
    scored += simulation.scored();
    not_scored += simulation.not_scored();
    ended_scored += simulation.ended_scored();
  }
  EXPECT_GT(succeeded, 2 * kRetrySeeds);
  EXPECT_GT(retried, kRetrySeeds / 4);
  EXPECT_GT(late, kRetrySeeds / 20);
  EXPECT_GT(resumed, kRetrySeeds / 2);
  EXPECT_GT(unreadable, kRetrySeeds / 60);
  EXPECT_GT(scored, kRetrySeeds / 2);
  EXPECT_GT(not_scored, kRetrySeeds / 8);
  EXPECT_GT(ended_scored, kRetrySeeds / 8);
}

}  // namespace
}  // namespace syncline
