// Goal: a member is given a job only after it was reached at its address.
// Method: registrations, and the answers of the addresses by hand.

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/core/cluster/cluster_core.h"
#include "scheduler/core/message_sizes.h"
#include "tests/unit/scheduler/core/cluster/cluster_core_fixture.h"

namespace syncline::scheduler {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_F(ClusterCoreAddressTest, OnlyConfirmedMembersAreGivenAJob) {
  Join(1, WORKER, 0, 11);
  EXPECT_THAT(Asked(), ElementsAre(1));
  Join(2, PS, 0, 12);
  EXPECT_THAT(Asked(), ElementsAre(2));
  const std::string job = Submit(1, 1);
  EXPECT_EQ(State(job), QUEUED);
  EXPECT_THAT(WaitingFor(job), HasSubstr("free: 0 workers, 0 ps"));
  Answer(1, absl::OkStatus());
  EXPECT_EQ(State(job), QUEUED);
  EXPECT_EQ(JobOf(1), "");
  EXPECT_THAT(JobOf(2), HasSubstr("(not confirmed: it is being asked)"));
  Answer(2, absl::OkStatus());
  EXPECT_EQ(State(job), PREPARING);
  EXPECT_EQ(JobOf(2), job);
}

TEST_F(ClusterCoreAddressTest, OneThatDoesNotAnswerIsAskedAgainAndLoggedOnce) {
  Join(1, WORKER, 0, 11);
  Join(2, PS, 0, 12);
  Answer(1, absl::OkStatus());
  const std::string job = Submit(1, 1);
  EXPECT_EQ(Answer(2, absl::UnavailableError("no route")), 1);
  EXPECT_THAT(JobOf(2), AllOf(HasSubstr("(not confirmed: "),
                              HasSubstr("no route"), HasSubstr("--advertise")));
  Beat(1);
  Beat(2);
  Tick(absl::Seconds(1));
  EXPECT_THAT(Asked(), ElementsAre(2));
  EXPECT_EQ(Answer(2, absl::UnavailableError("no route")), 0);
  EXPECT_EQ(State(job), QUEUED);
  Beat(1);
  Beat(2);
  Tick(absl::Seconds(2));
  EXPECT_THAT(Asked(), ElementsAre(2));
  Answer(2, absl::OkStatus());
  EXPECT_EQ(State(job), PREPARING);
}

TEST_F(ClusterCoreAddressTest, AFullClusterFitsIntoOneAnswer) {
  for (uint32_t i = 0; i < kMembersMax; ++i) {
    Register request;
    Member* const member = request.mutable_member();
    member->mutable_task()->set_type(WORKER);
    member->mutable_task()->set_index((1 << 20) - i);
    const std::string port = absl::StrCat(":", 10'000 + i);
    member->set_address(std::string(253, 'a') + port);
    member->set_http_address(std::string(253, 'b') + port);
    member->set_hostname(std::string(255, 'c'));
    member->set_version("0.1." + std::string(60, '1'));
    member->set_pid(-1);
    member->set_incarnation(1 + i);
    core_.OnRegister(1 + i, request, now_, &actions_);
    ASSERT_EQ(core_.membership().size(), 1 + i) << "is too long";
    actions_.clear();
    if (i % 16 != 0) continue;
    core_.OnAddressAnswer(1 + i, absl::UnavailableError(std::string(5000, 'e')),
                          now_, &actions_);
  }
  now_ += absl::Milliseconds(123);
  const ClusterStatus cluster = core_.Cluster(now_);
  EXPECT_EQ(cluster.members_size(), static_cast<int>(kMembersMax));
  EXPECT_LE(cluster.ByteSizeLong(), kCommandBytesMax);
  for (const auto& entry : cluster.members()) {
    ASSERT_EQ(entry.job_id(), "(not confirmed)");
  }
}

TEST_F(ClusterCoreAddressTest, AnAnswerIsForOneSession) {
  Join(1, WORKER, 0, 11);
  core_.OnStreamClosed(1, now_, &actions_);
  Join(2, WORKER, 0, 11);
  EXPECT_THAT(Asked(), ElementsAre(2));
  Answer(1, absl::OkStatus());  // late
  EXPECT_THAT(JobOf(2), HasSubstr("not confirmed"));
}

}  // namespace
}  // namespace syncline::scheduler
