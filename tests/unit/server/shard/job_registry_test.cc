// Goal: a job that was closed and opened again is not taken for the first.
// A call is only from who the job says has its rank. Method: entries without
// shards, and callers that are not theirs.

#include "server/shard/job_registry.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "common/base/incarnation.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace syncline::ps {
namespace {

std::shared_ptr<const JobEntry> Entry() {
  auto entry = std::make_shared<JobEntry>();
  entry->config.job_id = "j";
  return entry;
}

TEST(JobRegistryTest, KnowsAnEntryFromTheNextOfItsName) {
  JobRegistry jobs;
  const auto first = Entry();
  const auto second = Entry();
  EXPECT_FALSE(jobs.Has(*first));
  ASSERT_OK(jobs.Add(first));
  EXPECT_TRUE(jobs.Has(*first));
  EXPECT_FALSE(jobs.Has(*second));
  EXPECT_EQ(jobs.Add(second).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(jobs.Remove("j"), first);
  ASSERT_OK(jobs.Add(second));
  EXPECT_FALSE(jobs.Has(*first));
  EXPECT_TRUE(jobs.Has(*second));
}

TEST(JobRegistryTest, ACallIsFromTheProcessThatHasTheRank) {
  ConsistencyController::Options options;
  options.label = "job j on ps:0";
  options.workers = {{.incarnation = 7, .name = "worker:0"}};
  options.evaluator =
      ConsistencyController::Worker{.incarnation = 9, .name = "evaluator:0"};
  EXPECT_OK(options.CheckCaller(0, 7));
  EXPECT_OK(options.CheckCaller(1, 9));
  EXPECT_EQ(options.CheckCaller(0, 9).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(options.CheckCaller(2, 9).code(),
            absl::StatusCode::kInvalidArgument);
  const std::string refused(options.CheckCaller(0, 9).message());
  EXPECT_EQ(refused,
            absl::StrCat("job j on ps:0: incarnation ", IncarnationText(9),
                         " of worker:0 was replaced by ", IncarnationText(7)));
}

}  // namespace
}  // namespace syncline::ps
