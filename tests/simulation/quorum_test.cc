// Goal: where clocks end without some workers, all shards apply the same
// workers' gradients, once, and nobody waits forever.
// Method: seeded histories of real controllers and the real arbiter;
// quorum_simulation.h lists what is checked in each. A failure prints the seed.

#include "gtest/gtest.h"
#include "tests/simulation/quorum_simulation.h"
#include "tests/testing/seed_count.h"

namespace syncline::ps {
namespace {

constexpr int kSeeds = SeedCount(3400);
constexpr int kLossSeeds = SeedCount(10'000);

void ExpectAllSeedsHold(bool with_timeout, bool reduces, bool moves = false) {
  QuorumResult sum;
  for (int seed = 1; seed <= kSeeds; ++seed) {
    const QuorumResult result =
        SimulateQuorum({.seed = static_cast<uint64_t>(seed),
                        .with_timeout = with_timeout,
                        .reduces = reduces,
                        .moves = moves});
    ASSERT_EQ(result.broken, "") << "seed=" << seed;
    sum.left_behind += result.left_behind;
    sum.jumps += result.jumps;
    sum.late_steps += result.late_steps;
    sum.retries += result.retries;
    sum.moves += result.moves;
    sum.told_again += result.told_again;
  }
  ::testing::Test::RecordProperty("left_behind", sum.left_behind);
  ::testing::Test::RecordProperty("told_again", sum.told_again);
  EXPECT_EQ(sum.moves > 0, moves);
  if (moves) EXPECT_GT(sum.told_again, 0);
  ::testing::Test::RecordProperty("jumps", sum.jumps);
  ::testing::Test::RecordProperty("late_steps", sum.late_steps);
  // The histories have what they are about.
  EXPECT_GT(sum.left_behind, kSeeds);
  EXPECT_GT(sum.jumps, kSeeds / 10);
  EXPECT_GT(sum.late_steps, 0);
  EXPECT_GT(sum.retries, kSeeds / 10);
}

TEST(QuorumSimulation, WithBackups) {
  ExpectAllSeedsHold(/*with_timeout=*/false, /*reduces=*/false);
}

TEST(QuorumSimulation, WithBackupsAndNorms) {
  ExpectAllSeedsHold(/*with_timeout=*/false, /*reduces=*/true);
}

TEST(QuorumSimulation, WithTimeout) {
  ExpectAllSeedsHold(/*with_timeout=*/true, /*reduces=*/false);
}

TEST(QuorumSimulation, ShardsMove) {
  ExpectAllSeedsHold(/*with_timeout=*/false, /*reduces=*/false, /*moves=*/true);
  ExpectAllSeedsHold(/*with_timeout=*/true, /*reduces=*/true, /*moves=*/true);
}

TEST(QuorumSimulation, WorkersAreLost) {
  QuorumResult sum;
  for (int seed = 1; seed <= kLossSeeds; ++seed) {
    const QuorumResult result =
        SimulateQuorum({.seed = static_cast<uint64_t>(seed),
                        .reduces = seed % 2 == 0,
                        .loses_workers = true});
    ASSERT_EQ(result.broken, "") << "seed=" << seed;
    EXPECT_EQ(result.left_behind + result.jumps + result.late_steps, 0)
        << "seed=" << seed << ": of those that are there";
    sum.lost += result.lost;
    sum.lost_parts += result.lost_parts;
    sum.retries += result.retries;
  }
  ::testing::Test::RecordProperty("lost", sum.lost);
  ::testing::Test::RecordProperty("lost_parts", sum.lost_parts);
  EXPECT_GT(sum.lost, kLossSeeds / 2);
  EXPECT_GT(sum.lost_parts, kLossSeeds / 50);
  EXPECT_GT(sum.retries, kLossSeeds / 10);
}

}  // namespace
}  // namespace syncline::ps
