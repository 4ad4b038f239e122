// Goal: a job's status tells its progress, tables and evaluations, once each
// and bounded, and the evaluator has its part in the job's end. Method: reports
// of the chief, a worker, a ps and an evaluator, also repeated.

#include <optional>
#include <string>
#include <tuple>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/core/job/job.h"
#include "tests/unit/scheduler/core/job/job_fixture.h"

namespace syncline::scheduler {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// The largest count of skipped clocks, because all ps skip the same; blocks are
// of one ps each.
TEST_F(JobTest, WhatThePsHaveSkippedIsInTheProgress) {
  constexpr SessionId kOtherPs = 4;
  job_.Start({At(kChief, CHIEF, 0)}, {At(kPs, PS, 7), At(kOtherPs, PS, 8)},
             std::nullopt, "secret", now_, &actions_);
  for (const SessionId session : {kChief, kPs, kOtherPs}) Prepare(session);
  Report(kChief, 7);
  const auto skip = [this](SessionId session, uint64_t clocks,
                           uint64_t blocks) {
    PsReport report;
    report.set_skipped_clocks(clocks);
    report.set_dropped_blocks(blocks);
    job_.OnPsReport(session, report, now_, &actions_);
  };
  skip(kPs, 3, 10);
  actions_.clear();
  skip(kOtherPs, 2, 1);
  EXPECT_EQ(actions_.size(), 2u) << "kept, and told";
  skip(kOtherPs, 2, 1);
  EXPECT_EQ(actions_.size(), 2u) << "nothing new";
  JobProgress progress = job_.Status(now_).progress();
  EXPECT_EQ(progress.clock(), 7);
  EXPECT_EQ(progress.skipped_clocks(), 3u);
  EXPECT_EQ(progress.dropped_blocks(), 11u);
  EXPECT_THAT(job_.TableStatus(now_)->ps(), IsEmpty());
  skip(kChief, 100, 0);
  EXPECT_EQ(job_.Status(now_).progress().skipped_clocks(), 3u);

  // A later scheduler knows it too.
  StoredJob stored = Stored();
  stored.status = job_.status();
  Job restarted(stored, {.prepare_timeout = absl::Seconds(60),
                         .grace = absl::Seconds(2)});
  restarted.OnRestart(now_, &actions_);
  EXPECT_EQ(restarted.Status(now_).progress().skipped_clocks(), 3u);

  job_.Cancel("enough", now_, &actions_);
  skip(kPs, 4, 10);
  progress = job_.Status(now_).progress();
  EXPECT_EQ(progress.clock(), 7);
  EXPECT_EQ(progress.skipped_clocks(), 4u);
}

// The most frequent keys of a table matter less than the table.
TEST_F(JobTest, ATableStatusHasAsManyHotKeysAsFitAndNoMoreThanFits) {
  StartAndRun();
  const auto report = [&](int tables) {
    PsReport said;
    for (int t = 0; t < tables; ++t) {
      ShardStatus::Table* const table = said.add_tables();
      table->set_name(std::string(200, 'n'));
      table->set_pushed_rows(1);
      for (int64_t key = 0; key < 16; ++key) {
        table->add_hot_keys()->set_key(key);
        table->mutable_hot_keys(static_cast<int>(key))->set_pushes(100 - key);
      }
    }
    job_.OnPsReport(kPs, said, now_, &actions_);
    return job_.TableStatus(now_);
  };
  auto status = report(1000);
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_EQ(status->ps(0).tables(999).hot_keys_size(), 16);
  status = report(15'000);
  ASSERT_TRUE(status.ok()) << status.status();
  ASSERT_EQ(status->ps(0).tables_size(), 15'000);
  ASSERT_EQ(status->ps(0).tables(7).hot_keys_size(), 4);
  EXPECT_EQ(status->ps(0).tables(7).hot_keys(0).pushes(), 100u);
  status = report(40'000);
  EXPECT_EQ(status.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(
      status.status().message(),
      AllOf(HasSubstr("j-0001"), HasSubstr("40000"), HasSubstr("/metrics")));
}

TEST_F(JobTest, OnlyTheChiefEvaluatesAndTheListIsBounded) {
  StartAndRun();
  WorkerReport report;
  for (uint32_t epoch = 1; epoch <= 10'000; ++epoch) {
    report.mutable_evaluation()->set_epoch(epoch);
    job_.OnReport(kChief, report, now_, &actions_);
    job_.OnReport(kWorker, report, now_, &actions_);
  }
  const auto& evaluations = job_.status().evaluations();
  EXPECT_LE(evaluations.size(), 4096);
  EXPECT_GE(evaluations.size(), 1024);
  EXPECT_EQ(evaluations[0].epoch(), 1);
  EXPECT_EQ(evaluations[evaluations.size() - 1].epoch(), 10'000);
  for (int i = 1; i < evaluations.size(); ++i) {
    EXPECT_LT(evaluations[i - 1].epoch(), evaluations[i].epoch());
  }
}

// A daemon that has registered again repeats what may not have arrived.
TEST_F(JobTest, ARepeatedEvaluationIsOne) {
  StartAndRun();
  WorkerReport report;
  Evaluation* const evaluation = report.mutable_evaluation();
  for (const auto& [epoch, clock, final] : {std::tuple(1, 10, false),
                                            {2, 20, false},
                                            {1, 10, false},
                                            {2, 20, false},
                                            {2, 20, true},
                                            {2, 20, true}}) {
    evaluation->set_epoch(epoch);
    evaluation->set_clock(clock);
    evaluation->set_final(final);
    job_.OnReport(kChief, report, now_, &actions_);
  }
  ASSERT_EQ(job_.status().evaluations_size(), 3);
  EXPECT_EQ(job_.status().evaluations(0).clock(), 10);
  EXPECT_EQ(job_.status().evaluations(1).clock(), 20);
  EXPECT_TRUE(job_.status().evaluations(2).final());
}

class EvaluatedJobTest : public JobTest {
 protected:
  static constexpr SessionId kEvaluator = 5;

  void SetUp() override {
    job_.Start({At(kChief, CHIEF, 0), At(kWorker, WORKER, 4)}, {At(kPs, PS, 7)},
               At(kEvaluator, EVALUATOR, 1), "secret", now_, &actions_);
  }
  void Run() {
    JobPrepared prepared;
    prepared.set_clocks_per_epoch(30);
    prepared.set_clocks_total(70);
    job_.OnPrepared(kChief, prepared, now_, &actions_);
    for (const SessionId session : {kWorker, kPs, kEvaluator}) {
      Prepare(session);
    }
  }
};

TEST_F(EvaluatedJobTest, TheEvaluatorHasTheRankAfterTheWorkers) {
  EXPECT_EQ(job_.status().evaluator().rank(), 2u);
  EXPECT_EQ(job_.status().workers_size(), 2);
  EXPECT_EQ(reason(), "on 2 workers and 1 ps, evaluated by evaluator 1");
  EXPECT_THAT(Told(SchedulerMessage::kPrepare),
              ElementsAre(kChief, kWorker, kEvaluator, kPs));
}

TEST_F(EvaluatedJobTest, IsTheLengthThatTheChiefSays) {
  Run();
  EXPECT_THAT(Told(SchedulerMessage::kRun),
              ElementsAre(kChief, kWorker, kEvaluator));
  const RunJob& run = std::get<SendCommand>(actions_.back()).message.run();
  EXPECT_EQ(run.clocks_per_epoch(), 30);
  EXPECT_EQ(run.clocks_total(), 70);
}

TEST_F(EvaluatedJobTest, IsDoneWhenItsLastEvaluationIsThere) {
  Run();
  Done(kChief);
  Done(kWorker);
  EXPECT_FALSE(job_.stopping());
  EXPECT_EQ(job_.status().waiting_for(), "evaluator 1 at h:1");
  Done(kEvaluator);
  EXPECT_TRUE(job_.stopping());
  for (const SessionId session : {kChief, kWorker, kPs}) Gone(session);
  EXPECT_EQ(state(), RUNNING);
  Gone(kEvaluator);
  EXPECT_EQ(state(), SUCCEEDED);
  EXPECT_EQ(job_.status().waiting_for(), "");
  EXPECT_EQ(reason(), "all workers and the evaluator are done");
}

TEST_F(EvaluatedJobTest, OnlyTheEvaluatorsEvaluationsCount) {
  Run();
  WorkerReport report;
  report.mutable_evaluation()->set_epoch(1);
  report.mutable_progress()->set_clock(9);
  for (const SessionId session : {kChief, kWorker, kEvaluator}) {
    job_.OnReport(session, report, now_, &actions_);
  }
  EXPECT_EQ(job_.status().evaluations_size(), 1);
  EXPECT_EQ(job_.Status(now_).progress().workers_size(), 2);
}

TEST_F(EvaluatedJobTest, ALostEvaluatorIsNamedWithTheJobsClock) {
  Run();
  Report(kChief, 12);
  Report(kWorker, 11);
  Gone(kEvaluator, "stream closed");
  EXPECT_EQ(state(), FAILED);
  EXPECT_EQ(reason(),
            "evaluator 1 at h:1 (incarnation 0x6303) was lost: "
            "stream closed; last clock 11");
  EXPECT_EQ(job_.status().exit_code(), 138);
}

TEST_F(EvaluatedJobTest, TheEvaluatorHasNoStepsToProfile) {
  Run();
  EXPECT_TRUE(job_.WorkerSession(1).ok());
  const absl::Status refused = job_.WorkerSession(2).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("rank 2 is its evaluator, which does no steps"));
}

}  // namespace
}  // namespace syncline::scheduler
