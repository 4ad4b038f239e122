// Goal: a profile is asked of the worker of the given rank, and the profiles of
// a job are bounded. Method: requests before, during and after a run, and
// profiles that are stored or not.

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/core/cluster/cluster_core.h"
#include "tests/unit/scheduler/core/cluster/cluster_core_fixture.h"

namespace syncline::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// This bounds the memory of a worker and the files of a job.
TEST_F(ClusterCoreTest, ProfilesToComeAndProfilesOfAJobAreBounded) {
  Join(1, CHIEF, 0, 1);
  Join(2, WORKER, 0, 2);
  Join(3, PS, 0, 3);
  const std::string job = Submit(2, 1);
  for (const SessionId session : {1, 2, 3}) Prepared(session, job);
  const auto profile = [&](uint32_t rank) {
    ProfileRequest request;
    request.set_job_id(job);
    request.set_rank(rank);
    request.set_steps(1);
    return core_.Profile(request, &actions_);
  };
  const auto store = [&](const std::string& name) {
    Artifact artifact;
    artifact.set_name(name);
    EXPECT_TRUE(core_.AddArtifact(job, artifact, &actions_).ok());
  };
  std::vector<std::string> requests;
  for (int i = 0; i < 8; ++i) requests.push_back(*profile(0));
  EXPECT_EQ(requests[7], "profiles/8-rank-0.pb");
  EXPECT_EQ(profile(0).status(),
            absl::ResourceExhaustedError(
                "worker 0 of job j-0001 has 8 profiles to record already; ask "
                "again when it has stored one of them"));
  EXPECT_EQ(*profile(1), "profiles/9-rank-1.pb");
  // The third comes, so the first two were not stored and will not be.
  store(requests[2]);
  for (const char* name : {"1", "2", "10"}) {
    EXPECT_EQ(*profile(0), absl::StrCat("profiles/", name, "-rank-0.pb"));
  }
  EXPECT_EQ(profile(0).status().code(), absl::StatusCode::kResourceExhausted);
  store("profiles/9-rank-1.pb");
  for (int i = 11; i <= 100; ++i) store(*profile(1));
  EXPECT_EQ(profile(1).status(),
            absl::ResourceExhaustedError("job j-0001 has 100 profiles already, "
                                         "and no more are kept of one job"));
}

TEST_F(ClusterCoreTest, AProfileIsAskedOfTheWorkerOfThatRank) {
  const auto profile = [&](const std::string& job, uint32_t rank,
                           uint32_t steps) {
    ProfileRequest request;
    request.set_job_id(job);
    request.set_rank(rank);
    request.set_steps(steps);
    actions_.clear();
    return core_.Profile(request, &actions_);
  };
  const auto message = [&](const std::string& job, uint32_t rank,
                           uint32_t steps) {
    return std::string(profile(job, rank, steps).status().message());
  };
  Join(1, CHIEF, 0, 1);
  Join(2, WORKER, 0, 2);
  Join(3, PS, 0, 3);
  const std::string job = Submit(2, 1);
  EXPECT_EQ(message(job, 0, 20),
            "job j-0001 is PREPARING; only a running job can be profiled");
  for (const SessionId session : {1, 2, 3}) Prepared(session, job);
  ASSERT_EQ(State(job), RUNNING);

  const auto first = profile(job, 1, 20);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_THAT(Commands(), ElementsAre("2 profile"));
  const auto& sent = std::get<SendCommand>(actions_[0]).message.profile();
  EXPECT_EQ(sent.steps(), 20u);
  EXPECT_EQ(sent.artifact(), *first);
  EXPECT_EQ(*first, "profiles/1-rank-1.pb");
  EXPECT_EQ(*profile(job, 0, 1000), "profiles/2-rank-0.pb");
  EXPECT_THAT(Commands(), ElementsAre("1 profile"));

  EXPECT_EQ(message(job, 2, 20),
            "job j-0001 has no worker 2; it has 2, and their ranks begin at 0");
  EXPECT_EQ(message(job, 0, 0), "steps: 0 is outside 1..1000");
  EXPECT_EQ(message(job, 0, 1001), "steps: 1001 is outside 1..1000");
  EXPECT_EQ(profile("j-0009", 0, 1).status().code(),
            absl::StatusCode::kNotFound);
  DaemonMessage done;
  done.mutable_done()->set_job_id(job);
  core_.OnMessage(2, done, now_, &actions_);
  EXPECT_EQ(message(job, 1, 20), "worker 1 of job j-0001 has no step to do");
  EXPECT_THAT(Commands(), IsEmpty());
  Cancel(job);
  EXPECT_EQ(message(job, 0, 20),
            "job j-0001 is CANCELLED; only a running job can be profiled");
}

}  // namespace
}  // namespace syncline::scheduler
