// Goal: a job whose workers may be lost goes on in the same attempt without
// one, says so, and fails where it cannot. Method: events one by one.

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/job/lost_workers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/scheduler/core/job/job_fixture.h"

namespace syncline::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr SessionId kSecond = 5;
constexpr SessionId kThird = 6;
constexpr SessionId kOtherPs = 7;

class JobLossesTest : public JobTest {
 protected:
  void Run(uint32_t least = 1, Strategy strategy = PARAMETER_SERVER) {
    RestartSpec restart;
    restart.set_max(least == 3 ? 1 : 0);
    StoredJob stored =
        Stored(least == 3 ? std::optional(restart) : std::nullopt);
    JobSpec* const spec = stored.status.mutable_spec();
    spec->set_strategy(strategy);
    spec->mutable_training()->set_batch_size(8);
    if (leased_) {
      spec->mutable_data()->set_sharing(DataSpec::LEASED);
      spec->mutable_consistency()->set_mode(ConsistencySpec::ASYNC);
    }
    spec->mutable_resources()->set_workers(4);
    spec->mutable_resources()->set_min_workers(least);
    spec->mutable_checkpoint()->set_every_clocks(10);
    spec->mutable_checkpoint()->set_directory("/c");
    open_.emplace(stored, Options());
    open_->Start({At(kChief, CHIEF, 0), At(kWorker, WORKER, 0),
                  At(kSecond, WORKER, 1), At(kThird, WORKER, 2)},
                 {At(kPs, PS, 0), At(kOtherPs, PS, 1)}, std::nullopt, "secret",
                 now_, &actions_);
    JobPrepared prepared;
    prepared.set_clocks_total(100);
    for (const SessionId session :
         {kChief, kWorker, kSecond, kThird, kPs, kOtherPs}) {
      open_->OnPrepared(session, prepared, now_, &actions_);
    }
    ASSERT_EQ(open_->status().state(), RUNNING);
    actions_.clear();
  }
  void Lost(SessionId session) {
    open_->OnGone(session, "stream closed", now_, &actions_);
  }
  void AtClock(SessionId session, int64_t clock) {
    WorkerReport report;
    report.mutable_progress()->set_clock(clock);
    report.mutable_progress()->set_samples_per_second(10);
    open_->OnReport(session, report, now_, &actions_);
  }
  JobState State() const { return open_->status().state(); }

  SchedulerMessage LastCommand() const {
    SchedulerMessage last;
    for (const ClusterAction& action : actions_) {
      const auto* const sent = std::get_if<SendCommand>(&action);
      if (sent != nullptr) last = sent->message;
    }
    return last;
  }
  std::string Reason() const {
    const auto& transitions = open_->status().transitions();
    return transitions.rbegin()->reason();
  }

  bool leased_ = false;
  std::optional<Job> open_;
};

TEST_F(JobLossesTest, TheOthersGoOnAndThePsOfShard0IsTold) {
  Run();
  for (const SessionId session : {kChief, kWorker, kThird}) {
    AtClock(session, 7);
  }
  AtClock(kSecond, 5);
  EXPECT_EQ(open_->min_clock(), 5);
  Lost(kSecond);
  EXPECT_EQ(State(), RUNNING);
  EXPECT_THAT(Told(SchedulerMessage::kRemoveWorker), ElementsAre(kPs));
  EXPECT_EQ(open_->min_clock(), 7) << "of those that are left";
  const JobStatus status = open_->Status(now_);
  EXPECT_EQ(WorkersLeft(status), 3u);
  EXPECT_TRUE(IsLost(status, 2));
  EXPECT_THAT(status.lost_workers(0).reason(),
              HasSubstr("was lost: stream closed; last clock 5; the job goes "
                        "on with 3 workers"));
  EXPECT_EQ(status.progress().samples_per_second(), 30);
  EXPECT_THAT(status.transitions(status.transitions_size() - 1).reason(),
              HasSubstr("all participants are prepared"));
  // A ps that comes back may not have heard of it.
  actions_.clear();
  open_->OnResumed(kPs, 30, /*has_job=*/true, 0, now_, &actions_);
  EXPECT_THAT(Told(SchedulerMessage::kRemoveWorker), ElementsAre(30));
  for (const SessionId session : {kChief, kWorker, kThird}) {
    open_->OnDone(session, JobDone(), now_, &actions_);
  }
  EXPECT_TRUE(open_->stopping()) << "all that are left are done";
}

TEST_F(JobLossesTest, AnotherOneTooUntilTooFewAreLeft) {
  Run(/*least=*/2);
  Lost(kSecond);
  Lost(kWorker);
  EXPECT_EQ(State(), RUNNING);
  EXPECT_THAT(Told(SchedulerMessage::kRemoveWorker), ElementsAre(kPs, kPs));
  Lost(kThird);
  EXPECT_EQ(State(), FAILED);
}

TEST_F(JobLossesTest, WhoseLossEndsTheAttempt) {
  for (const SessionId session : {kChief, kPs, kOtherPs}) {
    Run();
    Lost(session);
    EXPECT_EQ(State(), FAILED) << session;
  }
  Run(/*least=*/0);
  Lost(kSecond);
  EXPECT_EQ(State(), FAILED);
  Run(/*least=*/1, ALL_REDUCE);
  Lost(kSecond);
  EXPECT_EQ(State(), FAILED);
}

TEST_F(JobLossesTest, WithLeasedDataAllPsAreToldAndSayWhatTheyHave) {
  leased_ = true;
  Run(/*least=*/3);
  Lost(kSecond);
  EXPECT_EQ(State(), RUNNING);
  EXPECT_THAT(Told(SchedulerMessage::kRemoveWorker),
              ElementsAre(kPs, kOtherPs));
  EXPECT_THAT(open_->status().lost_workers(0).reason(),
              HasSubstr("what was leased to this one is made by the chief"));
  actions_.clear();
  WorkerTakenOut answer;
  answer.set_rank(2);
  WorkerTakenOut::Shard* const shard = answer.add_shards();
  shard->set_begun_until(5);
  shard->set_whole_until(5);
  open_->OnTakenOut(kOtherPs, answer, now_, &actions_);
  EXPECT_THAT(actions_, IsEmpty()) << "the other ps has not answered";
  shard->add_leased(7);
  shard->add_leased(9);
  open_->OnTakenOut(kPs, answer, now_, &actions_);
  EXPECT_THAT(Told(SchedulerMessage::kReturnLeases),
              ElementsAre(kPs, kOtherPs));
  EXPECT_THAT(LastCommand().return_leases().clocks(), ElementsAre(7, 9));
  EXPECT_THAT(open_->status().lost_workers(0).leases(),
              HasSubstr("clocks 7 and 9 of its leases"));
  // A ps that comes back asks again, and is told the same.
  actions_.clear();
  open_->OnResumed(kOtherPs, 30, /*has_job=*/true, 0, now_, &actions_);
  EXPECT_THAT(Told(SchedulerMessage::kRemoveWorker), ElementsAre(30));
  actions_.clear();
  open_->OnTakenOut(30, answer, now_, &actions_);
  EXPECT_THAT(Told(SchedulerMessage::kReturnLeases), ElementsAre(30));
  // A later reason says what has become of it.
  Lost(kPs);
  EXPECT_THAT(Reason(), HasSubstr("was lost: stream closed; last clock 0: "
                                  "clocks 7 and 9 of its leases"));
}

TEST_F(JobLossesTest, WhatIsNoAnswerOfAPsToALossChangesNothing) {
  leased_ = true;
  Run();
  Lost(kSecond);
  WorkerTakenOut answer;
  answer.set_rank(2);
  answer.add_shards();
  actions_.clear();
  answer.set_rank(1);
  open_->OnTakenOut(kPs, answer, now_, &actions_);
  answer.set_rank(2);
  open_->OnTakenOut(kWorker, answer, now_, &actions_);
  EXPECT_THAT(actions_, IsEmpty());
}

TEST_F(JobLossesTest, AJobInSyncGoesBackWhereAPsCannotGoOn) {
  Run();
  Lost(kSecond);
  WorkerTakenOut answer;
  answer.set_rank(2);
  answer.set_refused("no shard of attempt 1 is open here");
  open_->OnTakenOut(kPs, answer, now_, &actions_);
  EXPECT_EQ(State(), FAILED);
  EXPECT_THAT(Reason(), HasSubstr("the job cannot go on without it: no shard"));
}

TEST_F(JobLossesTest, AJobWithLeasedDataGoesBackWhereAPsCannotGoOn) {
  leased_ = true;
  Run();
  Lost(kSecond);
  WorkerTakenOut answer;
  answer.set_rank(2);
  answer.set_refused("the attempt has not begun");
  open_->OnTakenOut(kPs, answer, now_, &actions_);
  EXPECT_EQ(State(), FAILED);
  EXPECT_THAT(Reason(), HasSubstr("the job cannot go on without it: the "
                                  "attempt has not begun"));
}

TEST_F(JobLossesTest, AWorkerThatIsToldToEndIsLost) {
  Run();
  JobDone done;
  done.set_code(static_cast<int>(absl::StatusCode::kAborted));
  done.set_message("it was told to stop (SIGTERM)");
  open_->OnDone(kSecond, done, now_, &actions_);
  EXPECT_EQ(State(), RUNNING);
  EXPECT_THAT(Told(SchedulerMessage::kRemoveWorker), ElementsAre(kPs));
  EXPECT_THAT(open_->status().lost_workers(0).reason(),
              HasSubstr("was lost: it was told to stop (SIGTERM); last clock"));
  EXPECT_FALSE(open_->GoesOnWithout(kSecond)) << "it does already";
  EXPECT_THAT(open_->TakeLeavers(), ElementsAre(kSecond));
  EXPECT_EQ(open_->LeaveReason(), "the others go on without it");
  Lost(kSecond);
  EXPECT_EQ(open_->status().lost_workers_size(), 1);
  // One that has failed would fail again.
  done.set_code(static_cast<int>(absl::StatusCode::kInternal));
  open_->OnDone(kThird, done, now_, &actions_);
  EXPECT_EQ(State(), FAILED);
}

TEST_F(JobLossesTest, WhatItHasLostIsInTheHistoryOfALaterAttempt) {
  Run(/*least=*/3);
  Lost(kSecond);
  const JobStatus& status = open_->status();
  Lost(kThird);
  EXPECT_EQ(State(), QUEUED);
  EXPECT_THAT(status.transitions(status.transitions_size() - 1).reason(),
              HasSubstr("; before that worker 1 at h:1"));
}

TEST_F(JobLossesTest, TheLastOneThatIsNotDoneMayBeLost) {
  Run();
  for (const SessionId session : {kChief, kWorker, kThird}) {
    open_->OnDone(session, JobDone(), now_, &actions_);
  }
  EXPECT_FALSE(open_->stopping());
  Lost(kSecond);
  EXPECT_TRUE(open_->stopping());
  EXPECT_EQ(State(), RUNNING);
}

TEST_F(JobLossesTest, TheRecordHasItBeforeThePsIsTold) {
  Run();
  Lost(kSecond);
  size_t persisted = 0;
  size_t sent = 0;
  for (size_t i = 0; i < actions_.size(); ++i) {
    if (std::holds_alternative<PersistJob>(actions_[i])) persisted = i + 1;
    if (std::holds_alternative<SendCommand>(actions_[i])) sent = i + 1;
  }
  EXPECT_GT(persisted, 0u);
  EXPECT_LT(persisted, sent);
}

TEST_F(JobLossesTest, WhatALostWorkerSaysLaterChangesNothing) {
  Run();
  Lost(kSecond);
  actions_.clear();
  AtClock(kSecond, 50);
  Lost(kSecond);
  open_->OnDone(kSecond, JobDone(), now_, &actions_);
  EXPECT_THAT(actions_, IsEmpty());
  EXPECT_EQ(open_->status().lost_workers_size(), 1);
}

TEST_F(JobLossesTest, TheStrategyDoesNotChangeWithoutIt) {
  Run();
  Lost(kSecond);
  ChangeRegimeRequest request;
  request.mutable_change()->set_strategy(ALL_REDUCE);
  const auto refused = open_->RequestRegime(request);
  EXPECT_THAT(std::string(refused.status().message()),
              HasSubstr("cannot change while job j-0001 goes on without a "
                        "worker that it has lost"));
  Run();
  ASSERT_TRUE(open_->RequestRegime(request).ok());
  Lost(kSecond);
  EXPECT_EQ(State(), FAILED) << "the state may be on its way to the workers";
}

TEST_F(JobLossesTest, ASchedulerThatStartsAnewKnowsOfIt) {
  Run();
  AtClock(kChief, 9);
  Lost(kSecond);
  const JobRecord record = open_->Record(now_);
  StoredJob stored = Stored();
  stored.status = record.status;
  stored.attempt = record.attempt;
  open_.emplace(stored, Options());
  ASSERT_TRUE(open_->CanBeTakenUp());
  SessionId next = 40;
  open_->TakeUp([&next] { return next++; }, now_, &actions_);
  EXPECT_THAT(open_->Participants(), ElementsAre(40, 41, 43, 44, 45));
  EXPECT_EQ(State(), RUNNING);
  actions_.clear();
  open_->OnResumed(44, 50, /*has_job=*/true, 0, now_, &actions_);
  EXPECT_THAT(Told(SchedulerMessage::kRemoveWorker), ElementsAre(50));
}

// As after a restore from a backup: its part was over long ago, and it says
// nothing of it again.
TEST_F(JobLossesTest, AMemberThatComesBackWithoutTheJobHasNoPartInIt) {
  Run();
  open_->OnResumed(kSecond, 30, /*has_job=*/false, 0, now_, &actions_);
  now_ += absl::Seconds(9);
  open_->OnTick(now_, &actions_);
  EXPECT_EQ(State(), RUNNING);
  now_ += absl::Seconds(1);
  open_->OnTick(now_, &actions_);
  EXPECT_EQ(State(), FAILED);
  EXPECT_THAT(Reason(), HasSubstr("worker 1 at h:1 came back without job "
                                  "j-0001"));
}

// As after a restore from a backup that was made before the job ended.
TEST_F(JobLossesTest, AChiefThatWasDoneHasStoredItsResults) {
  for (const bool is_here : {false, true}) {
    Run();
    Artifact history;
    history.set_name("history.csv");
    if (is_here) open_->AddArtifact(history, &actions_);
    open_->OnResumed(kChief, 30, /*has_job=*/false, 0, now_, &actions_);
    open_->OnDone(30, JobDone(), now_, &actions_);
    EXPECT_EQ(State(), is_here ? RUNNING : FAILED);
    if (!is_here) {
      EXPECT_THAT(Reason(), HasSubstr("its results are not here"));
    }
  }
}

TEST_F(JobLossesTest, AMemberThatComesBackAndIsDoneMayBeWithoutTheJob) {
  Run();
  open_->OnResumed(kSecond, 30, /*has_job=*/false, 0, now_, &actions_);
  open_->OnDone(30, JobDone(), now_, &actions_);
  now_ += absl::Seconds(10);
  open_->OnTick(now_, &actions_);
  EXPECT_EQ(State(), RUNNING);
}

}  // namespace
}  // namespace syncline::scheduler
