// Goal: a member whose work stands still is found, and one that comes forward
// slowly, waits for an evaluation or for others, or has nothing to do is left
// alone, until all its results are stored. Method: reports at invented times.

#include "scheduler/core/job/progress_watchdog.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline::scheduler {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr absl::Duration kLimit = absl::Seconds(100);
constexpr int64_t kClocks = 50;
constexpr uint64_t kChief = 1;
constexpr uint64_t kWorker = 2;
constexpr uint64_t kEvaluator = 3;

class ProgressWatchdogTest : public ::testing::Test {
 protected:
  void Begin(uint64_t incarnation, TaskType type, int64_t clocks) {
    Member member;
    member.mutable_task()->set_type(type);
    member.set_address("h:1");
    member.set_incarnation(incarnation);
    watchdog_.Begin(member, clocks, now_);
  }
  void BeginAll() {
    Begin(kChief, CHIEF, kClocks);
    Begin(kWorker, WORKER, kClocks);
    Begin(kEvaluator, EVALUATOR, 0);
  }
  void AtClock(uint64_t incarnation, int64_t clock) {
    WorkerReport report;
    report.mutable_progress()->set_clock(clock);
    watchdog_.OnReport(incarnation, report, now_);
  }
  void Does(uint64_t incarnation, const std::string& activity) {
    WorkerReport report;
    report.set_activity(activity);
    watchdog_.OnReport(incarnation, report, now_);
  }
  std::string Check() { return watchdog_.Check(now_).value_or(""); }

  ProgressWatchdog watchdog_{kLimit};
  absl::Time now_ = absl::UnixEpoch() + absl::Hours(1);
};

TEST_F(ProgressWatchdogTest, AWorkerThatClosesNoClockIsFound) {
  BeginAll();
  AtClock(kWorker, 7);
  for (int64_t clock = 8; clock < 20; ++clock) {
    now_ += kLimit / 10;
    AtClock(kChief, clock);
    // The worker repeats its report, without progress.
    AtClock(kWorker, 7);
  }
  EXPECT_THAT(Check(), AllOf(HasSubstr("worker 0 at h:1"), HasSubstr("clock 7"),
                             HasSubstr("120.0 s"),
                             HasSubstr("limits.step_timeout_seconds")));
}

TEST_F(ProgressWatchdogTest, ASlowStepIsNoStandstill) {
  BeginAll();
  for (int64_t clock = 1; clock < 5; ++clock) {
    now_ += kLimit;
    AtClock(kChief, clock);
    AtClock(kWorker, clock);
    EXPECT_EQ(Check(), "");
  }
}

TEST_F(ProgressWatchdogTest, AMemberThatIsDoneNeedNotMove) {
  BeginAll();
  AtClock(kChief, kClocks);
  watchdog_.End(kChief);
  watchdog_.End(kWorker);
  now_ += 10 * kLimit;
  EXPECT_EQ(Check(), "");
}

TEST_F(ProgressWatchdogTest, AChiefThatHangsWhileItWritesResultsIsFound) {
  BeginAll();
  AtClock(kChief, kClocks);
  watchdog_.End(kWorker);
  now_ += kLimit;
  Does(kChief, "writing trained.onnx, 512 bytes so far");
  now_ += kLimit;
  EXPECT_EQ(Check(), "");
  // A repeated report is no progress.
  Does(kChief, "writing trained.onnx, 512 bytes so far");
  AtClock(kChief, kClocks);
  now_ += absl::Seconds(1);
  EXPECT_THAT(
      Check(),
      AllOf(HasSubstr("chief 0 at h:1"), HasSubstr("101.0 s"),
            HasSubstr("it has closed clock 50, its last one, but is not done"),
            HasSubstr("it said last: writing trained.onnx, 512 bytes so far")));
}

TEST_F(ProgressWatchdogTest, AWorkerThatIsNotDoneAfterItsLastClockIsFound) {
  BeginAll();
  AtClock(kWorker, kClocks);
  watchdog_.End(kChief);
  now_ += kLimit + absl::Seconds(1);
  EXPECT_THAT(Check(), HasSubstr("worker 0 at h:1"));
}

// As long as it says more than before, its own limits hold.
TEST_F(ProgressWatchdogTest, ResultsThatTakeLongAreNoStandstill) {
  BeginAll();
  AtClock(kChief, kClocks);
  watchdog_.End(kWorker);
  for (int i = 0; i < 30; ++i) {
    now_ += kLimit;
    Does(kChief,
         "trained.onnx is on h until the scheduler has it, given up in " +
             std::to_string(1800 - i) + " s");
    EXPECT_EQ(Check(), "");
  }
}

// A fast worker waits for the end of the other workers' clocks.
TEST_F(ProgressWatchdogTest, AFastWorkerMayWaitForTheSlowestOne) {
  BeginAll();
  AtClock(kChief, kClocks);
  for (int64_t clock = 1; clock < 30; ++clock) {
    now_ += kLimit;
    AtClock(kWorker, clock);
    EXPECT_EQ(Check(), "");
  }
  now_ += kLimit + absl::Seconds(1);
  EXPECT_THAT(Check(), AllOf(HasSubstr("worker 0"), HasSubstr("clock 29")));
}

TEST_F(ProgressWatchdogTest, AnEvaluatorThatHangsAfterItsLastEvaluation) {
  Begin(kEvaluator, EVALUATOR, 0);
  WorkerReport report;
  report.mutable_evaluation()->set_clock(kClocks);
  report.mutable_evaluation()->set_final(true);
  watchdog_.OnReport(kEvaluator, report, now_);
  now_ += kLimit;
  EXPECT_EQ(Check(), "");
  Does(kEvaluator, "storing metrics.json");
  now_ += kLimit;
  EXPECT_EQ(Check(), "");
  now_ += absl::Seconds(1);
  EXPECT_THAT(Check(), AllOf(HasSubstr("evaluator 0 at h:1"),
                             HasSubstr("it has evaluated clock 50"),
                             HasSubstr("storing metrics.json")));
}

// An evaluator holds all workers at its cut.
TEST_F(ProgressWatchdogTest, ALongEvaluationThatMovesIsEverybodysProgress) {
  BeginAll();
  for (int done = 0; done < 30; ++done) {
    now_ += kLimit / 10;
    Does(kEvaluator, "evaluating, " + std::to_string(done) + " of 30");
    EXPECT_EQ(Check(), "");
  }
  now_ += kLimit + absl::Seconds(1);
  EXPECT_THAT(Check(), AllOf(HasSubstr("evaluator 0 at h:1"),
                             HasSubstr("evaluating, 29 of 30")));
}

// The chief has made its local steps, and waits for the worker.
TEST_F(ProgressWatchdogTest, LocalStepsAreProgressOfARound) {
  BeginAll();
  for (int done = 1; done < 30; ++done) {
    now_ += kLimit / 10;
    Does(kWorker, "local step " + std::to_string(done) + " of 30 of the round");
    EXPECT_EQ(Check(), "");
  }
  now_ += kLimit + absl::Seconds(1);
  EXPECT_THAT(Check(), AllOf(HasSubstr("worker 0 at h:1"),
                             HasSubstr("local step 29 of 30")));
}

// One of a checkpoint holds none.
TEST_F(ProgressWatchdogTest, AnEvaluationThatHoldsNobodyExcusesNobody) {
  ProgressWatchdog watchdog(kLimit, /*holds_workers=*/false);
  Member worker;
  worker.mutable_task()->set_type(WORKER);
  worker.set_address("h:1");
  worker.set_incarnation(kWorker);
  watchdog.Begin(worker, kClocks, now_);
  Member evaluator;
  evaluator.mutable_task()->set_type(EVALUATOR);
  evaluator.set_incarnation(kEvaluator);
  watchdog.Begin(evaluator, 0, now_);
  for (int done = 0; done < 11; ++done) {
    EXPECT_EQ(watchdog.Check(now_).value_or(""), "");
    now_ += kLimit / 10;
    WorkerReport report;
    report.set_activity("evaluating, " + std::to_string(done) + " of 30");
    watchdog.OnReport(kEvaluator, report, now_);
  }
  EXPECT_THAT(watchdog.Check(now_).value_or(""), HasSubstr("worker 0 at h:1"));
  EXPECT_EQ(watchdog.moved_within_clock(), absl::InfinitePast());
  // Where no worker trains any more it is all that moves.
  watchdog.End(kWorker);
  EXPECT_EQ(watchdog.moved_within_clock(), now_);
}

TEST_F(ProgressWatchdogTest, AnEvaluatorThatWaitsForItsCutIsNotWatched) {
  Begin(kEvaluator, EVALUATOR, 0);
  Does(kEvaluator, "evaluating");
  Does(kEvaluator, "");
  now_ += 10 * kLimit;
  EXPECT_EQ(Check(), "");
  // A report of the time of preparing, which is repeated.
  Does(kEvaluator, "reading test.csv, 5 MiB of it so far");
  now_ += 10 * kLimit;
  EXPECT_EQ(Check(), "");
}

TEST_F(ProgressWatchdogTest, OfSeveralTheOneThatIsFurthestBehind) {
  BeginAll();
  AtClock(kChief, 9);
  AtClock(kWorker, 8);
  now_ += kLimit + absl::Seconds(1);
  EXPECT_THAT(Check(), HasSubstr("worker 0"));
}

}  // namespace
}  // namespace syncline::scheduler
