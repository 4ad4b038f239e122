// Goal: a job that cannot go on although its members heartbeat fails with the
// cause, and not with its consequence.
// Method: reports, failures and time, and what Check says of them.

#include "scheduler/core/job/job_health.h"

#include <string>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline::scheduler {
namespace {

using ::testing::HasSubstr;

constexpr int kUnavailable = static_cast<int>(absl::StatusCode::kUnavailable);
constexpr int kDeadline = static_cast<int>(absl::StatusCode::kDeadlineExceeded);
constexpr absl::Duration kGrace = absl::Seconds(2);

Member At(TaskType type, uint64_t incarnation) {
  Member member;
  member.mutable_task()->set_type(type);
  member.set_address("h:" + std::to_string(incarnation));
  member.set_incarnation(incarnation);
  return member;
}

class JobHealthTest : public ::testing::Test {
 protected:
  JobHealthTest() : health_(Spec(), kGrace) {}

  static JobSpec Spec() {
    JobSpec spec;
    spec.mutable_limits()->set_step_timeout_seconds(20);
    return spec;
  }
  void BeginRun() {
    JobMembers members;
    Participant participant;
    *participant.mutable_member() = worker_;
    members.Add(1, JobMember::Role::kWorker, participant);
    *participant.mutable_member() = ps_;
    members.Add(2, JobMember::Role::kPs, participant);
    health_.BeginRun(members, /*clocks_total=*/100, now_);
  }
  void ReportUnreachable(double seconds = 0) {
    PeerUnreachable report;
    report.set_seconds(seconds);
    report.mutable_peer()->set_incarnation(ps_.incarnation());
    health_.OnUnreachable(worker_, ps_, report, now_);
  }
  std::string Reason() const { return health_.Check(now_).value_or(""); }

  const Member worker_ = At(WORKER, 1);
  const Member ps_ = At(PS, 2);
  absl::Time now_ = absl::UnixEpoch() + absl::Hours(1);
  JobHealth health_;
};

TEST_F(JobHealthTest, AnOutageWaitsForItsCause) {
  EXPECT_TRUE(
      health_.OnFailure(worker_, kUnavailable, true, "worker 0: gone", now_));
  EXPECT_TRUE(
      health_.OnFailure(worker_, kUnavailable, true, "worker 1: gone", now_));
  now_ += kGrace - absl::Milliseconds(1);
  EXPECT_EQ(Reason(), "");
  now_ += absl::Milliseconds(1);
  EXPECT_EQ(Reason(), "worker 0: gone") << "the first one";
  health_.OnAllDone();
  EXPECT_EQ(Reason(), "");
}

TEST_F(JobHealthTest, WhatALostMemberHasSaidCountsNoMore) {
  health_.BeginRun(JobMembers(), 0, now_);
  ReportUnreachable();
  EXPECT_TRUE(
      health_.OnFailure(worker_, kUnavailable, true, "worker 1: gone", now_));
  health_.OnLost(worker_);
  now_ += kGrace;
  EXPECT_EQ(Reason(), "");
  // What another one has said does.
  EXPECT_TRUE(health_.OnFailure(ps_, kUnavailable, true, "ps 2: gone", now_));
  health_.OnLost(worker_);
  now_ += kGrace;
  EXPECT_EQ(Reason(), "ps 2: gone");
}

TEST_F(JobHealthTest, AFailureThatIsNoConsequenceIsTheCause) {
  EXPECT_FALSE(
      health_.OnFailure(worker_, kDeadline, true, "worker 0: late", now_));
  ReportUnreachable();
  EXPECT_FALSE(
      health_.OnFailure(worker_, 3, false, "worker 0: bad data", now_));
  EXPECT_TRUE(
      health_.OnFailure(worker_, kDeadline, true, "worker 0: late", now_));
  now_ += kGrace;
  EXPECT_THAT(Reason(), HasSubstr("cannot reach ps 0 at h:2"));
  EXPECT_THAT(Reason(), HasSubstr("; worker 0: late"));
}

TEST_F(JobHealthTest, MembersMayBeApartForOneStepTimeout) {
  ReportUnreachable(19.9);
  EXPECT_EQ(Reason(), "");
  ReportUnreachable(20);
  EXPECT_THAT(Reason(), HasSubstr("worker 0 at h:1 cannot reach ps 0 at h:2"));
}

TEST_F(JobHealthTest, AWorkerMayStandStillForTenStepTimeouts) {
  WorkerReport report;
  health_.OnReport(worker_, report, false, now_);  // before the run: ignored
  BeginRun();
  now_ += absl::Seconds(200);
  EXPECT_EQ(Reason(), "");
  now_ += absl::Seconds(1);
  EXPECT_THAT(Reason(), HasSubstr("worker 0 at h:1"));
  // A repeated evaluation is no progress, a closed clock is.
  report.mutable_evaluation()->set_clock(5);
  health_.OnReport(worker_, report, /*has_new_evaluation=*/false, now_);
  EXPECT_NE(Reason(), "");
  report.mutable_progress()->set_clock(6);
  health_.OnReport(worker_, report, /*has_new_evaluation=*/false, now_);
  EXPECT_EQ(Reason(), "");
  health_.OnDone(worker_);
  now_ += absl::Hours(1);
  EXPECT_EQ(Reason(), "");
}

}  // namespace
}  // namespace syncline::scheduler
