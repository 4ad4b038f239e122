// Goal: a running job has its chief change the regime, one change at a time,
// for users and by its own rules, and says what has become of each. Method:
// requests, and reports of the chief.

#include <optional>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/core/job/job.h"
#include "tests/unit/scheduler/core/job/job_fixture.h"

namespace syncline::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class JobRegimeTest : public JobTest {
 protected:
  absl::StatusOr<SchedulerMessage> Request(ConsistencySpec::Mode mode,
                                           const std::string& reason = "r") {
    ChangeRegimeRequest request;
    request.mutable_change()->set_mode(mode);
    request.set_reason(reason);
    return job_.RequestRegime(request);
  }
  void ReportRegime(int64_t clock, ConsistencySpec::Mode mode,
                    const std::string& error = "", SessionId by = kChief) {
    WorkerReport report;
    RegimeTransition* const transition = report.mutable_regime();
    transition->set_reason("r");
    transition->set_error(error);
    transition->mutable_time()->set_seconds(++second_);
    if (error.empty()) {
      transition->mutable_regime()->set_first_clock(clock);
      transition->mutable_regime()->mutable_consistency()->set_mode(mode);
    }
    job_.OnReport(by, report, now_, &actions_);
  }
  int second_ = 0;
};

// Skipped clocks are reported by the ps, and by the chief while the workers
// have the state.
TEST_F(JobRegimeTest, WhoReportsFollowsTheStrategy) {
  StartAndRun();
  const auto report = [&](SessionId by, uint64_t skipped) {
    PsReport message;
    message.set_job_id("j-0001");
    message.set_attempt(1);
    message.set_skipped_clocks(skipped);
    job_.OnPsReport(by, message, now_, &actions_);
    return job_.status().progress().skipped_clocks();
  };
  EXPECT_EQ(report(kPs, 2), 2u);
  EXPECT_EQ(report(kChief, 9), 2u);
  WorkerReport changed;
  RegimeTransition* const transition = changed.mutable_regime();
  transition->set_reason("r");
  transition->mutable_time()->set_seconds(1);
  transition->mutable_regime()->set_first_clock(5);
  transition->mutable_regime()->set_strategy(ALL_REDUCE);
  job_.OnReport(kChief, changed, now_, &actions_);
  EXPECT_EQ(report(kPs, 7), 2u);
  EXPECT_EQ(report(kChief, 3), 3u);
}

TEST_F(JobRegimeTest, TheChiefIsAskedAndAnswers) {
  StartAndRun();
  const auto message = Request(ConsistencySpec::ASYNC);
  ASSERT_TRUE(message.ok()) << message.status();
  EXPECT_EQ(message->change_regime().job_id(), "j-0001");
  EXPECT_EQ(message->change_regime().attempt(), 1u);
  EXPECT_EQ(message->change_regime().reason(), "r");
  EXPECT_FALSE(job_.RegimeOutcome().has_value());
  const absl::Status second = Request(ConsistencySpec::ASYNC).status();
  EXPECT_THAT(std::string(second.message()), HasSubstr("is under way: r"));
  // synctl's exit code says that it is worth a retry.
  EXPECT_EQ(second.code(), absl::StatusCode::kAborted);
  ReportRegime(7, ConsistencySpec::ASYNC, "", kWorker);
  EXPECT_FALSE(job_.RegimeOutcome().has_value()) << "not the chief";
  ReportRegime(7, ConsistencySpec::ASYNC);
  ASSERT_TRUE(job_.RegimeOutcome().has_value());
  EXPECT_EQ((*job_.RegimeOutcome())->regime().first_clock(), 7);
  EXPECT_EQ(job_.status().regimes_size(), 2);
  EXPECT_THAT(std::string(Request(ConsistencySpec::ASYNC).status().message()),
              HasSubstr("trains so already"));
  EXPECT_TRUE(Request(ConsistencySpec::SYNC).ok());
}

TEST_F(JobRegimeTest, AChangeThatFailsIsAnError) {
  StartAndRun();
  ASSERT_TRUE(Request(ConsistencySpec::ASYNC).ok());
  ReportRegime(0, ConsistencySpec::ASYNC, "no answer from ps:1");
  ASSERT_TRUE(job_.RegimeOutcome().has_value());
  EXPECT_THAT(std::string(job_.RegimeOutcome()->status().message()),
              HasSubstr("has not changed: no answer from ps:1"));
  EXPECT_TRUE(Request(ConsistencySpec::ASYNC).ok());
}

TEST_F(JobRegimeTest, AJobThatEndsMeanwhileIsAnError) {
  StartAndRun();
  ASSERT_TRUE(Request(ConsistencySpec::ASYNC).ok());
  job_.Cancel("", now_, &actions_);
  ASSERT_TRUE(job_.RegimeOutcome().has_value());
  EXPECT_THAT(std::string(job_.RegimeOutcome()->status().message()),
              HasSubstr("is CANCELLED, before its regime has changed"));
}

TEST_F(JobRegimeTest, AChiefThatCameBackIsAskedAgain) {
  StartAndRun();
  ASSERT_TRUE(Request(ConsistencySpec::ASYNC).ok());
  actions_.clear();
  constexpr SessionId kNew = 9;
  job_.OnResumed(kChief, kNew, /*has_job=*/true, /*clock=*/0, now_, &actions_);
  EXPECT_THAT(Told(SchedulerMessage::kChangeRegime), ElementsAre(kNew));
}

class RuledJobTest : public JobRegimeTest {
 protected:
  static StoredJob Ruled() {
    StoredJob stored = Stored();
    RegimeRule* rule = stored.status.mutable_spec()->add_regimes();
    rule->mutable_when()->set_clock(10);
    rule->mutable_then()->set_mode(ConsistencySpec::ASYNC);
    rule = stored.status.mutable_spec()->add_regimes();
    rule->mutable_when()->set_clock(20);
    rule->mutable_then()->set_mode(ConsistencySpec::ASYNC);
    return stored;
  }
};

TEST_F(RuledJobTest, RulesAskTheChiefOnce) {
  Job ruled(Ruled(), Options());
  ruled.Start({At(kChief, CHIEF, 0)}, {At(kPs, PS, 7)}, std::nullopt, "secret",
              now_, &actions_);
  for (const SessionId session : {kChief, kPs}) {
    ruled.OnPrepared(session, JobPrepared(), now_, &actions_);
  }
  const auto report = [&](int64_t clock) {
    WorkerReport progress;
    progress.mutable_progress()->set_clock(clock);
    progress.mutable_progress()->set_clocks_total(1000);
    ruled.OnReport(kChief, progress, now_, &actions_);
  };
  report(9);
  EXPECT_THAT(Told(SchedulerMessage::kChangeRegime), IsEmpty());
  report(12);
  EXPECT_THAT(Told(SchedulerMessage::kChangeRegime), ElementsAre(kChief));
  report(25);
  EXPECT_THAT(Told(SchedulerMessage::kChangeRegime), ElementsAre(kChief))
      << "one after the other";
  WorkerReport made;
  made.mutable_regime()->set_reason("rule 1: clock 10");
  made.mutable_regime()->mutable_regime()->set_first_clock(27);
  made.mutable_regime()->mutable_regime()->mutable_consistency()->set_mode(
      ConsistencySpec::ASYNC);
  ruled.OnReport(kChief, made, now_, &actions_);
  report(30);
  // The second one would change nothing, which the history says.
  EXPECT_THAT(Told(SchedulerMessage::kChangeRegime), ElementsAre(kChief));
  ASSERT_EQ(ruled.status().regimes_size(), 3);
  EXPECT_EQ(ruled.status().regimes(1).reason(), "rule 1: clock 10");
  EXPECT_EQ(ruled.status().regimes(2).reason(), "rule 2: clock 20");
  EXPECT_THAT(ruled.status().regimes(2).error(),
              HasSubstr("trains so already"));
}

TEST_F(RuledJobTest, RulesHoldAlsoWhereAnotherSchedulerTakesTheJobUp) {
  Job before(Ruled(), Options());
  before.Start({At(kChief, CHIEF, 0)}, {At(kPs, PS, 7)}, std::nullopt, "secret",
               now_, &actions_);
  for (const SessionId session : {kChief, kPs}) {
    before.OnPrepared(session, JobPrepared(), now_, &actions_);
  }
  const JobRecord record = before.Record(now_);
  StoredJob stored;
  stored.status = record.status;
  stored.attempt = record.attempt;
  Job ruled(std::move(stored), Options());
  ASSERT_TRUE(ruled.CanBeTakenUp());
  SessionId next = kAbsentSessions;
  actions_.clear();
  ruled.TakeUp([&next] { return next++; }, now_, &actions_);
  ruled.OnResumed(kAbsentSessions, kChief, /*has_job=*/true, /*clock=*/9, now_,
                  &actions_);
  EXPECT_THAT(Told(SchedulerMessage::kChangeRegime), IsEmpty());
  WorkerReport progress;
  progress.mutable_progress()->set_clock(12);
  progress.mutable_progress()->set_clocks_total(1000);
  ruled.OnReport(kChief, progress, now_, &actions_);
  EXPECT_THAT(Told(SchedulerMessage::kChangeRegime), ElementsAre(kChief));
}

TEST_F(RuledJobTest, AUsersChangeIsAnsweredBeforeARuleMakesItsOwn) {
  Job ruled(Ruled(), Options());
  ruled.Start({At(kChief, CHIEF, 0)}, {At(kPs, PS, 7)}, std::nullopt, "secret",
              now_, &actions_);
  for (const SessionId session : {kChief, kPs}) {
    ruled.OnPrepared(session, JobPrepared(), now_, &actions_);
  }
  ChangeRegimeRequest request;
  request.mutable_change()->set_mode(ConsistencySpec::ASYNC);
  request.set_reason("r");
  ASSERT_TRUE(ruled.RequestRegime(request).ok());
  WorkerReport progress;
  progress.mutable_progress()->set_clock(12);
  progress.mutable_progress()->set_clocks_total(1000);
  ruled.OnReport(kChief, progress, now_, &actions_);
  WorkerReport failed;
  failed.mutable_regime()->set_reason("r");
  failed.mutable_regime()->set_error("no answer from ps:1");
  ruled.OnReport(kChief, failed, now_, &actions_);
  // The rule has come true meanwhile, and waits until the user has this.
  ASSERT_TRUE(ruled.RegimeOutcome().has_value());
  EXPECT_THAT(std::string(ruled.RegimeOutcome()->status().message()),
              HasSubstr("no answer from ps:1"));
  EXPECT_THAT(Told(SchedulerMessage::kChangeRegime), IsEmpty());
  ruled.OnReport(kChief, progress, now_, &actions_);
  EXPECT_THAT(Told(SchedulerMessage::kChangeRegime), ElementsAre(kChief));
}

// A user's change ends the trials of a job for good: a later attempt is not
// asked for any.
TEST_F(JobRegimeTest, AUsersChangeEndsTheTrialsOfLaterAttempts) {
  for (const std::string reason :
       {"auto: trying ASYNC for 50 clocks", "synctl regime"}) {
    StoredJob stored = Stored();
    stored.status.set_attempt(1);
    stored.status.mutable_spec()->mutable_auto_regime();
    stored.status.add_regimes()->set_reason("as submitted");
    RegimeTransition* const changed = stored.status.add_regimes();
    changed->set_reason(reason);
    changed->mutable_regime()->set_first_clock(20);
    Job later(std::move(stored), Options());
    actions_.clear();
    later.Start({At(kChief, CHIEF, 0)}, {At(kPs, PS, 7)}, std::nullopt,
                "secret", now_, &actions_);
    int told = 0;
    for (const ClusterAction& action : actions_) {
      const auto* const command = std::get_if<SendCommand>(&action);
      if (command == nullptr || !command->message.has_prepare()) continue;
      ++told;
      EXPECT_EQ(
          command->message.prepare().assignment().spec().has_auto_regime(),
          reason != "synctl regime");
    }
    EXPECT_EQ(told, 2);
    EXPECT_TRUE(later.status().spec().has_auto_regime());
  }
}

// "The job trains so already" would be wrong as soon as the trial is over.
TEST_F(JobRegimeTest, ARegimeThatIsOnlyTriedIsNotTheJobsYet) {
  StartAndRun();
  const auto report = [&](int64_t clock, ConsistencySpec::Mode mode,
                          const std::string& reason) {
    WorkerReport told;
    RegimeTransition* const transition = told.mutable_regime();
    transition->set_reason(reason);
    transition->mutable_time()->set_seconds(clock);
    transition->mutable_regime()->set_first_clock(clock);
    transition->mutable_regime()->mutable_consistency()->set_mode(mode);
    job_.OnReport(kChief, told, now_, &actions_);
  };
  report(7, ConsistencySpec::ASYNC, "auto: trying ASYNC for 50 clocks");
  const absl::Status tried = Request(ConsistencySpec::ASYNC).status();
  EXPECT_EQ(tried.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(tried.message()),
              HasSubstr("trains so already: ASYNC"));
  EXPECT_THAT(std::string(tried.message()),
              HasSubstr("; it only tries that (auto: trying ASYNC for 50 "
                        "clocks): try again when"));
  // A change that this job can never make is refused for good.
  EXPECT_EQ(Request(ConsistencySpec::SYNC_WITH_BACKUPS).status().code(),
            absl::StatusCode::kInvalidArgument);
  report(57, ConsistencySpec::SYNC,
         "auto: back to SYNC after 50 clocks of ASYNC");
  EXPECT_TRUE(Request(ConsistencySpec::ASYNC).ok());
}

}  // namespace
}  // namespace syncline::scheduler
