// Goal: what was found is counted by worker, and fails the job where it should.
// Method: examples of each policy.

#include "server/shard/non_finite_log.h"

#include "gtest/gtest.h"

namespace syncline::ps {
namespace {

TEST(NonFiniteLogTest, TheFirstFindingFailsTheJobAndIsNamed) {
  NonFiniteLog log(OnNonFinite::kFailJob, {"chief:0 at a:1", "worker:0 at b:2"},
                   "job j on ps:0");
  EXPECT_FALSE(log.failed());
  EXPECT_EQ(log.failure(), absl::OkStatus());
  log.Found(1, 7, "element 12 of 'w1'");
  log.Found(0, 8, "element 3 of 'b1'");
  EXPECT_TRUE(log.failed());
  EXPECT_EQ(log.failure(),
            absl::FailedPreconditionError(
                "job j on ps:0: the gradient of clock 7 is not finite: element "
                "12 of 'w1', of worker:0 at b:2"));
}

TEST(NonFiniteLogTest, OtherPoliciesCount) {
  for (const auto policy : {OnNonFinite::kSkipStep, OnNonFinite::kDropBlock}) {
    NonFiniteLog log(policy, {"chief:0 at a:1", "worker:0 at b:2"}, "job j");
    log.Found(1, 7, "element 12 of 'w1'");
    log.Found(1, 8, "element 12 of 'w1'");
    log.Found(NonFiniteLog::kSum, 8, "'w1'");
    EXPECT_FALSE(log.failed());
    EXPECT_EQ(log.CountOf(0), 0u);
    EXPECT_EQ(log.CountOf(1), 2u);
    log.Found(1, 9, "element 12 of 'w1'");
    EXPECT_EQ(log.CountOf(1), 3u);
    EXPECT_EQ(log.total(), 4u);
  }
}

TEST(NonFiniteLogTest, ASumHasNoWorker) {
  NonFiniteLog log(OnNonFinite::kFailJob, {"chief:0"}, "job j");
  log.Found(NonFiniteLog::kSum, 8, "element 1 of 'w1'");
  EXPECT_EQ(log.failure().message(),
            "job j: the gradient of clock 8 is not finite: element 1 of 'w1', "
            "in the sum over all workers");
}

TEST(NonFiniteLogTest, CountsGoOnFromAnEarlierProcess) {
  NonFiniteLog log(OnNonFinite::kDropBlock, {"chief:0", "worker:0"}, "job j");
  log.Import({3, 5}, 9);
  EXPECT_EQ(log.CountOf(1), 5u);
  EXPECT_EQ(log.total(), 9u);
  log.Found(1, 9, "element 12 of 'w1'");
  EXPECT_EQ(log.CountOf(1), 6u);
  EXPECT_FALSE(log.failed());
}

}  // namespace
}  // namespace syncline::ps
