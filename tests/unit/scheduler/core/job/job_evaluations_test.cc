// Goal: the evaluator of a job's checkpoints is given those of the present
// attempt, and what a job that trains nothing starts from; a worker whose
// values are later than the job's end stores none. Method: jobs at the begin of
// an attempt, and reports of their members.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/scheduler/core/job/job_fixture.h"

namespace syncline::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr SessionId kEvaluator = 4;
constexpr int64_t kClocks = 100;

class JobEvaluationsTest : public JobTest {
 protected:
  static StoredJob Evaluated() {
    StoredJob stored = Stored();
    JobSpec* const spec = stored.status.mutable_spec();
    spec->mutable_data()->mutable_test();
    spec->mutable_checkpoint()->set_directory("/ckpt");
    spec->mutable_evaluate()->set_checkpoints(true);
    return stored;
  }
  // A checkpoint, as its chief reports it.
  static WorkerReport Made(int64_t clock, uint32_t attempt) {
    WorkerReport report;
    report.set_attempt(attempt);
    report.mutable_checkpoint()->set_clock(clock);
    report.mutable_checkpoint()->set_path("/ckpt/j-0001/" +
                                          std::to_string(clock));
    return report;
  }
  void Begin(Job* job) {
    job->Start({At(kChief, CHIEF, 0), At(kWorker, WORKER, 4)}, {At(kPs, PS, 7)},
               At(kEvaluator, EVALUATOR, 0), "secret", now_, &actions_);
  }
  void Run(Job* job) {
    for (const SessionId session : {kChief, kWorker, kPs, kEvaluator}) {
      JobPrepared prepared;
      prepared.set_clocks_per_epoch(10);
      prepared.set_clocks_total(kClocks);
      job->OnPrepared(session, prepared, now_, &actions_);
    }
    ASSERT_EQ(job->status().state(), RUNNING);
  }
  // The checkpoints that the evaluator was told to score; "": to finish.
  std::vector<std::string> Scored() const {
    std::vector<std::string> paths;
    for (const ClusterAction& action : actions_) {
      const auto* const send = std::get_if<SendCommand>(&action);
      if (send == nullptr || !send->message.has_evaluate()) continue;
      EXPECT_EQ(send->session, kEvaluator);
      paths.push_back(send->message.evaluate().checkpoint().path());
    }
    return paths;
  }
};

TEST_F(JobEvaluationsTest, WhatAJobWithoutStepsStartsFromIsItsResult) {
  for (const int64_t clock : {kClocks - 10, kClocks}) {
    actions_.clear();
    StoredJob stored = Evaluated();
    StartSpec* const start = stored.status.mutable_spec()->mutable_start();
    start->set_checkpoint("/ckpt/j-0000/" + std::to_string(clock));
    start->set_clock(clock);
    Job job(std::move(stored), Options());
    Begin(&job);
    Run(&job);
    if (clock < kClocks) {
      EXPECT_THAT(Scored(), IsEmpty()) << "its own come";
    } else {
      EXPECT_THAT(Scored(), ElementsAre("/ckpt/j-0000/100"));
    }
  }
}

// The chief of the attempt before told of a checkpoint when the next attempt
// was prepared from an earlier one already.
TEST_F(JobEvaluationsTest, ACheckpointThatTheJobHasGoneBackFromIsNotScored) {
  StoredJob stored = Evaluated();
  stored.status.mutable_spec()->mutable_restart()->set_max(1);
  Job job(std::move(stored), Options());
  Begin(&job);
  Run(&job);
  job.OnReport(kChief, Made(20, /*attempt=*/1), now_, &actions_);
  job.OnGone(kWorker, "stream closed", now_, &actions_);
  for (const SessionId session : {kChief, kEvaluator, kPs}) {
    job.OnGone(session, "", now_, &actions_);
  }
  ASSERT_TRUE(job.IsWaiting());
  Begin(&job);
  job.OnLateReport(At(kChief, CHIEF, 0).member, Made(40, /*attempt=*/1), now_,
                   &actions_);
  ASSERT_EQ(job.status().checkpoints_size(), 2);
  actions_.clear();
  Run(&job);
  EXPECT_THAT(Scored(), ElementsAre("/ckpt/j-0001/20"));
  actions_.clear();
  // This attempt's own, which is earlier than that one, is scored.
  job.OnReport(kChief, Made(30, /*attempt=*/2), now_, &actions_);
  WorkerReport scored;
  scored.mutable_evaluation()->set_epoch(2);
  scored.mutable_evaluation()->set_clock(20);
  scored.mutable_evaluation()->set_checkpoint("/ckpt/j-0001/20");
  job.OnReport(kEvaluator, scored, now_, &actions_);
  EXPECT_THAT(Scored(), ElementsAre("/ckpt/j-0001/30"));
}

TEST_F(JobEvaluationsTest, OneThatOnlyEvaluatesHasNoNumberOfWorkers) {
  StoredJob stored = Stored();
  stored.status.mutable_spec()->mutable_evaluate()->set_only(true);
  stored.status.mutable_spec()->mutable_resources()->set_workers(1);
  const Job job(std::move(stored), Options());
  const absl::Status refused = job.CheckScale(2);
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("evaluate.only"));
}

TEST_F(JobEvaluationsTest, AWorkerThatIsBeyondTheEndStoresNothing) {
  StoredJob stored = Evaluated();
  stored.status.mutable_spec()->mutable_stop()->set_metric(LOSS);
  Job job(std::move(stored), Options());
  Begin(&job);
  Run(&job);
  EXPECT_FALSE(job.WasLetGo(kChief));
  WorkerReport report;
  report.mutable_evaluation()->set_epoch(2);
  report.mutable_evaluation()->set_clock(20);
  report.mutable_evaluation()->set_final(true);
  job.OnReport(kEvaluator, report, now_, &actions_);
  EXPECT_THAT(job.TakeLeavers(), ElementsAre(kChief, kWorker));
  EXPECT_TRUE(job.WasLetGo(kChief));
  EXPECT_TRUE(job.WasLetGo(kWorker));
  EXPECT_FALSE(job.WasLetGo(kEvaluator)) << "it stores the results";
  EXPECT_FALSE(job.WasLetGo(kPs));
}

}  // namespace
}  // namespace syncline::scheduler
