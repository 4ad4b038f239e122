// Goal: a job's progress is that of its slowest worker, and its numbers add up.
// Method: reports in all orders, among them late and hostile ones.

#include "scheduler/core/job/job_progress.h"

#include <cmath>
#include <limits>

#include "gtest/gtest.h"

namespace syncline::scheduler {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

WorkerProgress Report(int64_t clock, double loss, double speed) {
  WorkerProgress report;
  report.set_clock(clock);
  report.set_clocks_total(100);
  report.set_clocks_per_epoch(25);
  report.set_loss(loss);
  report.set_samples_per_second(speed);
  return report;
}

TEST(JobProgressTest, NothingIsKnownBeforeTheFirstReport) {
  const JobProgressTracker tracker(2, 4);
  const JobProgress progress = tracker.Summary(absl::Seconds(3));
  EXPECT_EQ(progress.clock(), 0);
  EXPECT_TRUE(std::isnan(progress.loss()));
  EXPECT_LT(progress.seconds_left(), 0);
  EXPECT_EQ(progress.epochs_total(), 4);
  EXPECT_EQ(progress.workers_size(), 2);
}

TEST(JobProgressTest, SlowestClockMeanLossSummedSpeed) {
  JobProgressTracker tracker(2, 4);
  tracker.OnReport(0, Report(60, 1.0, 10));
  tracker.OnReport(1, Report(50, 2.0, 20));
  const JobProgress progress = tracker.Summary(absl::Seconds(5));
  EXPECT_EQ(progress.clock(), 50);
  EXPECT_EQ(progress.clocks_total(), 100);
  EXPECT_EQ(progress.epoch(), 3);
  EXPECT_EQ(progress.loss(), 1.5);
  EXPECT_EQ(progress.samples_per_second(), 30);
  EXPECT_NEAR(progress.seconds_left(), 5, 1e-9);
  EXPECT_EQ(tracker.ClockOf(0), 60);
  EXPECT_EQ(tracker.ClockOf(7), 0);
}

// The clocks before it were another attempt's.
TEST(JobProgressTest, ALaterAttemptCountsFromItsFirstClock) {
  JobProgressTracker tracker(2, 4, /*start_clock=*/50);
  EXPECT_EQ(tracker.MinClock(), 50);
  EXPECT_LT(tracker.Summary(absl::Seconds(5)).seconds_left(), 0);
  tracker.OnReport(0, Report(60, 1, 1));
  EXPECT_EQ(tracker.MinClock(), 50);
  tracker.OnReport(1, Report(60, 1, 1));
  EXPECT_NEAR(tracker.Summary(absl::Seconds(5)).seconds_left(), 20, 1e-9);
}

TEST(JobProgressTest, TheLastEpochIsNotPassed) {
  JobProgressTracker tracker(1, 4);
  tracker.OnReport(0, Report(100, 1, 1));
  EXPECT_EQ(tracker.Summary(absl::Seconds(1)).epoch(), 4);
  EXPECT_EQ(tracker.Summary(absl::Seconds(1)).seconds_left(), 0);
}

TEST(JobProgressTest, AnEarlyEndIsInTheEpochThatIsDone) {
  JobProgressTracker tracker(1, 4);
  tracker.OnReport(0, Report(50, 1, 1));
  EXPECT_EQ(tracker.Summary(absl::Seconds(1)).epoch(), 3);
  tracker.EndEarly();
  EXPECT_EQ(tracker.Summary(absl::Seconds(1)).epoch(), 2);
  JobProgressTracker at_once(1, 4);
  at_once.OnReport(0, Report(0, 1, 1));
  at_once.EndEarly();
  EXPECT_EQ(at_once.Summary(absl::Seconds(1)).epoch(), 1);
}

TEST(JobProgressTest, LateAndForeignReportsChangeNothing) {
  JobProgressTracker tracker(1, 4);
  tracker.OnReport(0, Report(10, 1.0, 5));
  tracker.OnReport(0, Report(9, 9.0, 5));
  tracker.OnReport(3, Report(1, 9.0, 5));
  EXPECT_EQ(tracker.MinClock(), 10);
  EXPECT_EQ(tracker.Summary(absl::Seconds(1)).loss(), 1.0);
}

TEST(JobProgressTest, GoesOnFromARecord) {
  JobProgressTracker before(2, 4);
  before.OnReport(0, Report(60, 1.0, 10));
  before.OnReport(1, Report(50, 2.0, 20));
  const JobProgress known = before.Summary(absl::Seconds(5));
  JobProgressTracker tracker(2, 4);
  tracker.Restore(known);
  EXPECT_EQ(tracker.ClockOf(0), 60);
  EXPECT_EQ(tracker.ClockOf(1), 50);
  const JobProgress progress = tracker.Summary(absl::Seconds(5));
  EXPECT_EQ(progress.clock(), 50);
  EXPECT_EQ(progress.clocks_total(), 100);
  EXPECT_EQ(progress.loss(), 1.5);
  EXPECT_EQ(progress.samples_per_second(), 0);
  EXPECT_TRUE(tracker.curve().empty());
  // One that the record does not have is not before the slowest.
  JobProgressTracker more(3, 4);
  more.Restore(known);
  EXPECT_EQ(more.ClockOf(2), 50);
  // No clock goes back.
  JobProgressTracker later(2, 4, /*start_clock=*/55);
  later.Restore(known);
  EXPECT_EQ(later.ClockOf(0), 60);
  EXPECT_EQ(later.ClockOf(1), 55);
}

TEST(JobProgressTest, AReportWithoutStepsKeepsTheLoss) {
  JobProgressTracker tracker(1, 4);
  tracker.OnReport(0, Report(10, 1.0, 5));
  tracker.OnReport(0, Report(10, kNaN, 0));
  EXPECT_EQ(tracker.Summary(absl::Seconds(1)).loss(), 1.0);
  WorkerProgress without = Report(10, 0, 0);
  without.clear_loss();
  tracker.OnReport(0, without);
  EXPECT_EQ(tracker.Summary(absl::Seconds(1)).loss(), 1.0);
  tracker.OnReport(0, Report(11, 0, 0));
  EXPECT_TRUE(tracker.Summary(absl::Seconds(1)).has_loss());
  EXPECT_EQ(tracker.Summary(absl::Seconds(1)).loss(), 0.0);
}

TEST(JobProgressTest, TheCurveIsBoundedAndEven) {
  JobProgressTracker tracker(1, 1);
  for (int64_t clock = 1; clock <= 100'000; ++clock) {
    tracker.OnReport(0, Report(clock, 1.0 / static_cast<double>(clock), 1));
  }
  const auto curve = tracker.curve();
  EXPECT_GE(curve.size(), 64);
  EXPECT_LE(curve.size(), 256);
  EXPECT_EQ(curve.front().clock, 1);
  EXPECT_GT(curve.back().clock, 99'000);
  for (size_t i = 2; i < curve.size(); ++i) {
    const int64_t gap = curve[i].clock - curve[i - 1].clock;
    EXPECT_LE(gap, 2 * (curve[1].clock - curve[0].clock)) << i;
    EXPECT_GT(gap, 0);
  }
}

TEST(JobProgressTest, LossesThatAreNoNumbersStayOutOfTheCurve) {
  JobProgressTracker tracker(1, 1);
  tracker.OnReport(0, Report(1, std::numeric_limits<double>::infinity(), 1));
  EXPECT_TRUE(tracker.curve().empty());
}

}  // namespace
}  // namespace syncline::scheduler
