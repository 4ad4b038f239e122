// Goal: a job whose chief ends it early succeeds with the reason; its other
// workers are done where they are held, and are stopped at once. Method: the
// chief's reports, in both orders in which they may arrive.

#include <optional>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/scheduler/core/job/job_fixture.h"

namespace syncline::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class JobEarlyEndTest : public JobTest {
 protected:
  JobEarlyEndTest() {
    StoredJob stored = Stored();
    stored.status.mutable_spec()->mutable_stop()->set_metric(LOSS);
    stored.status.mutable_spec()->mutable_data()->mutable_test();
    stored.status.mutable_spec()->mutable_checkpoint()->set_every_clocks(1000);
    early_.emplace(std::move(stored), Options());
  }
  void Run() {
    early_->Start({At(kChief, CHIEF, 0), At(kWorker, WORKER, 4)},
                  {At(kPs, PS, 7)}, std::nullopt, "secret", now_, &actions_);
    for (const SessionId session : {kChief, kWorker, kPs}) {
      JobPrepared prepared;
      prepared.set_clocks_per_epoch(10);
      prepared.set_clocks_total(1000);
      early_->OnPrepared(session, prepared, now_, &actions_);
    }
  }
  void Evaluated(int64_t clock, bool final) {
    WorkerReport report;
    report.mutable_evaluation()->set_epoch(static_cast<uint32_t>(clock / 10));
    report.mutable_evaluation()->set_clock(clock);
    report.mutable_evaluation()->set_final(final);
    early_->OnReport(kChief, report, now_, &actions_);
  }
  void ChiefIsDone(const std::string& why) {
    JobDone done;
    done.set_message(why);
    early_->OnDone(kChief, done, now_, &actions_);
  }
  void AllGo() {
    for (const SessionId session : {kWorker, kPs, kChief}) {
      early_->OnGone(session, "", now_, &actions_);
    }
  }
  std::string EarlyReason() const {
    return early_->status().transitions().rbegin()->reason();
  }

  std::optional<Job> early_;
};

TEST_F(JobEarlyEndTest, AnEvaluatorWouldNotDo) {
  EXPECT_FALSE(early_->WantsEvaluator());
}

TEST_F(JobEarlyEndTest, TheWorkersGoWithTheLastEvaluation) {
  Run();
  Evaluated(10, /*final=*/false);
  EXPECT_THAT(early_->TakeLeavers(), IsEmpty());
  Evaluated(20, /*final=*/true);
  EXPECT_THAT(early_->TakeLeavers(), ElementsAre(kWorker));
  EXPECT_EQ(early_->LeaveReason(), "the job ends early");
  EXPECT_THAT(early_->TakeLeavers(), IsEmpty());
  EXPECT_FALSE(early_->stopping()) << "the chief exports";
  early_->OnGone(kWorker, "", now_, &actions_);
  EXPECT_EQ(early_->status().state(), RUNNING);
  ChiefIsDone("LOSS has become no better");
  EXPECT_TRUE(early_->stopping());
  AllGo();
  EXPECT_EQ(early_->status().state(), SUCCEEDED);
  EXPECT_EQ(EarlyReason(),
            "all workers are done; it ended early: LOSS has become no better");
}

TEST_F(JobEarlyEndTest, TheChiefsEndAloneIsEnough) {
  Run();
  ChiefIsDone("LOSS has become no better");
  EXPECT_TRUE(early_->stopping());
  AllGo();
  EXPECT_EQ(early_->status().state(), SUCCEEDED);
}

TEST_F(JobEarlyEndTest, TheLastClockIsNoEarlyEnd) {
  Run();
  Evaluated(1000, /*final=*/true);
  EXPECT_THAT(early_->TakeLeavers(), IsEmpty());
  ChiefIsDone("");
  EXPECT_FALSE(early_->stopping()) << "the worker is not done";
}

TEST_F(JobEarlyEndTest, AWorkerThatIsLostWhileTheChiefExportsCostsNothing) {
  Run();
  Evaluated(20, /*final=*/true);
  early_->OnGone(kWorker, "stream closed", now_, &actions_);
  EXPECT_EQ(early_->status().state(), RUNNING);
  EXPECT_THAT(early_->status().done_ranks(), ElementsAre(1u));
}

TEST_F(JobEarlyEndTest, AJobThatEndsIsNotMoved) {
  Run();
  ASSERT_TRUE(early_->RequestMove(1, "ps 7 is drained", /*for_scale=*/false,
                                  now_, &actions_));
  Evaluated(20, /*final=*/true);
  WorkerReport report;
  report.mutable_checkpoint()->set_path("/c/20");
  report.mutable_checkpoint()->set_clock(20);
  early_->OnReport(kChief, report, now_, &actions_);
  EXPECT_EQ(early_->status().state(), RUNNING);
  EXPECT_FALSE(early_->RequestMove(2, "ps 7 is drained", /*for_scale=*/false,
                                   now_ + absl::Minutes(1), &actions_));
}

// The scheduler that let it go may have ended before it said so.
TEST_F(JobEarlyEndTest, AWorkerThatWasLetGoAndComesBackIsStopped) {
  Run();
  Evaluated(20, /*final=*/true);
  EXPECT_THAT(early_->TakeLeavers(), ElementsAre(kWorker));
  constexpr SessionId kNew = 9;
  early_->OnResumed(kWorker, kNew, /*has_job=*/true, /*clock=*/20, now_,
                    &actions_);
  EXPECT_THAT(early_->TakeLeavers(), ElementsAre(kNew));
  early_->OnResumed(kChief, 8, /*has_job=*/true, /*clock=*/20, now_, &actions_);
  EXPECT_THAT(early_->TakeLeavers(), IsEmpty()) << "the chief exports";
}

// Clocks end without some workers, so the last one may end without them, too.
TEST_F(JobEarlyEndTest, WithBackupsTheOthersGoWhenTheChiefIsDone) {
  constexpr SessionId kEvaluator = 5;
  StoredJob stored = Stored();
  ConsistencySpec* const consistency =
      stored.status.mutable_spec()->mutable_consistency();
  consistency->set_mode(ConsistencySpec::SYNC_WITH_BACKUPS);
  consistency->set_needed(1);
  Job job(std::move(stored), Options());
  job.Start({At(kChief, CHIEF, 0), At(kWorker, WORKER, 4)}, {At(kPs, PS, 7)},
            At(kEvaluator, EVALUATOR, 0), "secret", now_, &actions_);
  for (const SessionId session : {kChief, kWorker, kPs, kEvaluator}) {
    JobPrepared prepared;
    prepared.set_clocks_per_epoch(10);
    prepared.set_clocks_total(1000);
    job.OnPrepared(session, prepared, now_, &actions_);
  }
  job.OnDone(kChief, JobDone(), now_, &actions_);
  EXPECT_THAT(job.TakeLeavers(), ElementsAre(kWorker));
  EXPECT_EQ(job.LeaveReason(), "the chief has made the job's last step");
  EXPECT_FALSE(job.stopping()) << "the evaluator is not done";
  // The scheduler that let it go may have ended before it said so.
  constexpr SessionId kNew = 9;
  job.OnResumed(kWorker, kNew, /*has_job=*/true, /*clock=*/900, now_,
                &actions_);
  EXPECT_THAT(job.TakeLeavers(), ElementsAre(kNew));
  job.OnResumed(kChief, 8, /*has_job=*/true, /*clock=*/1000, now_, &actions_);
  EXPECT_THAT(job.TakeLeavers(), IsEmpty());
}

}  // namespace
}  // namespace syncline::scheduler
