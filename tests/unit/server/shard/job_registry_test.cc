// Goal: a job that was closed and opened again is not taken for the first.
// A call is only from who the job says has its rank, and by the routing that
// the job is at. Method: entries without shards, and callers that are not
// theirs.

#include "server/shard/job_registry.h"

#include <memory>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/incarnation.h"
#include "common/job/orphaned_job.h"
#include "common/wire/routing_version.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace syncline::ps {
namespace {

using ::testing::HasSubstr;

std::shared_ptr<const JobEntry> Entry(uint32_t shard) {
  auto entry = std::make_shared<JobEntry>();
  entry->config.job_id = "j";
  entry->config.shard = shard;
  return entry;
}

// Of a job with one worker, incarnation 7.
std::shared_ptr<const JobAccess> Access(uint64_t routing_version = 1,
                                        uint32_t attempt = 1) {
  auto access = std::make_shared<JobAccess>();
  access->job_id = "j";
  access->label = "job j on ps:0";
  access->pass = {.attempt = attempt, .secret = "secret"};
  access->routing_version = routing_version;
  access->callers.label = access->label;
  access->callers.workers = {{.incarnation = 7, .name = "worker:0"}};
  return access;
}

Caller CallerAt(uint64_t routing_version, uint32_t shard) {
  Caller caller;
  caller.set_job_id("j");
  caller.set_incarnation(7);
  caller.set_attempt(1);
  caller.set_job_secret("secret");
  caller.set_routing_version(routing_version);
  caller.set_shard(shard);
  return caller;
}

TEST(JobRegistryTest, KnowsAnEntryFromTheNextOfItsName) {
  JobRegistry jobs;
  const auto first = Entry(0);
  const auto second = Entry(0);
  EXPECT_FALSE(jobs.Has(*first));
  ASSERT_OK(jobs.Add(Access(), {first}));
  EXPECT_TRUE(jobs.Has(*first));
  EXPECT_FALSE(jobs.Has(*second));
  EXPECT_EQ(jobs.Add(Access(), {second}).code(),
            absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(jobs.Remove("j"), JobRegistry::Shards({first}));
  EXPECT_EQ(jobs.Remove("j"), std::nullopt);
  ASSERT_OK(jobs.Add(Access(), {second}));
  EXPECT_FALSE(jobs.Has(*first));
  EXPECT_TRUE(jobs.Has(*second));
}

TEST(JobRegistryTest, HasSeveralShardsOfAJob) {
  JobRegistry jobs;
  const auto first = Entry(1);
  const auto second = Entry(4);
  ASSERT_OK(jobs.Add(Access(), {first, second}));
  EXPECT_EQ(jobs.All(), JobRegistry::Shards({first, second}));
  EXPECT_EQ(*jobs.AllOf("j"), JobRegistry::Shards({first, second}));
  EXPECT_TRUE(jobs.Has(*second));
  // Found, but these entries have no shard.
  EXPECT_THAT(std::string(jobs.Find(CallerAt(1, 4)).status().message()),
              HasSubstr("no block of the job is here"));
  EXPECT_THAT(std::string(jobs.Find(CallerAt(1, 0)).status().message()),
              HasSubstr("job j on ps:0: shard 0 is not here"));
}

// Of a ps that has no shard any more, too: callers learn from it where to go.
TEST(JobRegistryTest, CallersByAnEarlierRoutingLearnTheVersion) {
  JobRegistry jobs;
  const auto former = Entry(0);
  const auto later = Entry(3);
  ASSERT_OK(jobs.Add(Access(2), {former}));
  const absl::Status ahead = jobs.Find(CallerAt(3, 0)).status();
  EXPECT_EQ(ahead.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(RoutingVersionOf(ahead), std::nullopt);

  const auto access = Access(3);
  const auto taken = jobs.BeginRouting(access);
  ASSERT_OK(taken.status());
  EXPECT_EQ(*taken, JobRegistry::Shards({former}));
  EXPECT_FALSE(jobs.Has(*former));
  const absl::Status behind = jobs.Find(CallerAt(2, 0)).status();
  EXPECT_EQ(behind.code(), absl::StatusCode::kAborted);
  EXPECT_EQ(RoutingVersionOf(behind), 3u);
  EXPECT_EQ(jobs.Find(CallerAt(3, 3)).status().code(),
            absl::StatusCode::kUnavailable)
      << "its shards are being opened";
  EXPECT_EQ(jobs.FindAccess(CallerAt(1, 9)).status().code(),
            absl::StatusCode::kUnavailable);

  ASSERT_OK(jobs.EndRouting(*access, {later}));
  EXPECT_EQ(jobs.FindAccess(CallerAt(1, 9)).value(), access);
  EXPECT_TRUE(jobs.Has(*later));
  EXPECT_THAT(std::string(jobs.Find(CallerAt(3, 3)).status().message()),
              HasSubstr("no block of the job is here"));
  EXPECT_EQ(RoutingVersionOf(jobs.Find(CallerAt(2, 0)).status()), 3u);
}

TEST(JobRegistryTest, AJobGoesOnlyToALaterRoutingOfItsAttempt) {
  JobRegistry jobs;
  EXPECT_EQ(jobs.BeginRouting(Access(2)).status().code(),
            absl::StatusCode::kFailedPrecondition)
      << "it is not open";
  const auto shard = Entry(0);
  ASSERT_OK(jobs.Add(Access(2), {shard}));
  EXPECT_THAT(std::string(jobs.BeginRouting(Access(2)).status().message()),
              HasSubstr("is at routing version 2"));
  EXPECT_EQ(jobs.BeginRouting(Access(3, /*attempt=*/2)).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(jobs.Has(*shard));
  // Closed meanwhile, and perhaps opened again.
  const auto access = Access(3);
  ASSERT_OK(jobs.BeginRouting(access).status());
  EXPECT_NE(jobs.Remove("j"), std::nullopt);
  EXPECT_EQ(jobs.EndRouting(*access, {}).code(),
            absl::StatusCode::kFailedPrecondition);
  ASSERT_OK(jobs.Add(Access(3), {shard}));
  EXPECT_EQ(jobs.EndRouting(*access, {}).code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(JobRegistryTest, SaysThatAJobWasClosedForWantOfAScheduler) {
  JobRegistry jobs;
  const auto problem = [&] {
    return std::string(jobs.AllOf("j").status().message());
  };
  ASSERT_OK(jobs.Add(Access(), {Entry(0)}));
  EXPECT_NE(jobs.Remove("j", OrphanedText("h:9", absl::Seconds(3))),
            std::nullopt);
  EXPECT_EQ(problem(),
            "job j is not open on this ps: it was closed: scheduler at h:9 has "
            "been out of reach for 3s");
  ASSERT_OK(jobs.Add(Access(), {Entry(0)}));
  EXPECT_NE(jobs.Remove("j", "the job is done"), std::nullopt);
  EXPECT_EQ(problem(), "job j is not open on this ps");
}

// A change of the routing that fails closes what it has begun with.
TEST(JobRegistryTest, AnOpeningIsNotRemovedForAnEarlierOne) {
  JobRegistry jobs;
  ASSERT_OK(jobs.Add(Access(2), {Entry(0)}));
  const auto access = Access(3);
  ASSERT_OK(jobs.BeginRouting(access).status());
  EXPECT_NE(jobs.Remove("j"), std::nullopt);
  EXPECT_EQ(jobs.Remove(*access), std::nullopt);
  const auto shard = Entry(0);
  const auto next = Access(3, /*attempt=*/2);
  ASSERT_OK(jobs.Add(next, {shard}));
  EXPECT_EQ(jobs.Remove(*access), std::nullopt);
  EXPECT_TRUE(jobs.Has(*shard));
  EXPECT_EQ(jobs.Remove(*next), JobRegistry::Shards({shard}));
  EXPECT_FALSE(jobs.Has(*shard));
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
