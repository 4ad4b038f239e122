// Goal: what a worker says about itself adds up.
// Method: steps and reports at invented times.

#include "worker/job/progress_meter.h"

#include <cmath>

#include "gtest/gtest.h"

namespace syncline::worker {
namespace {

const absl::Time kStart = absl::FromUnixSeconds(1000);
constexpr ProgressMeter::StepTimes kTimes = {.data = absl::Milliseconds(1),
                                             .compute = absl::Milliseconds(20),
                                             .push = absl::Milliseconds(3),
                                             .wait = absl::Milliseconds(4),
                                             .pull = absl::Milliseconds(5)};

TEST(ProgressMeterTest, TotalsGoOnWhileRatesStartOver) {
  ProgressMeter meter(2, {.steps_per_epoch = 5, .clocks_total = 10},
                      /*start_clock=*/0, kStart);
  meter.AddStep(0, 32, 64.0, kTimes);
  meter.AddStep(1, 32, 32.0, kTimes);
  const WorkerProgress first = meter.Report(kStart + absl::Seconds(2));
  EXPECT_EQ(first.rank(), 2u);
  EXPECT_EQ(first.clock(), 2);
  EXPECT_EQ(first.clocks_total(), 10);
  EXPECT_EQ(first.clocks_per_epoch(), 5);
  EXPECT_EQ(first.samples(), 64u);
  EXPECT_DOUBLE_EQ(first.loss(), 1.5);
  EXPECT_DOUBLE_EQ(first.samples_per_second(), 32);
  EXPECT_NEAR(first.compute_seconds(), 0.040, 1e-9);
  EXPECT_NEAR(first.push_seconds(), 0.006, 1e-9);
  EXPECT_NEAR(first.wait_seconds(), 0.008, 1e-9);
  EXPECT_NEAR(first.pull_seconds(), 0.010, 1e-9);
  EXPECT_NEAR(first.data_seconds(), 0.002, 1e-9);

  meter.AddStep(2, 10, 5.0, kTimes);
  const WorkerProgress second = meter.Report(kStart + absl::Seconds(3));
  EXPECT_EQ(second.samples(), 74u);
  EXPECT_DOUBLE_EQ(second.loss(), 0.5);
  EXPECT_DOUBLE_EQ(second.samples_per_second(), 10);

  const WorkerProgress totals = meter.Totals(kStart + absl::Seconds(4));
  EXPECT_EQ(totals.samples(), 74u);
  EXPECT_DOUBLE_EQ(totals.loss(), 101.0 / 74);
  EXPECT_DOUBLE_EQ(totals.samples_per_second(), 18.5);
}

TEST(ProgressMeterTest, WhatIsComputedAddsUp) {
  ProgressMeter meter(0, {.steps_per_epoch = 5, .clocks_total = 10},
                      /*start_clock=*/0, kStart);
  meter.AddComputed(1, 2, 0);
  meter.AddComputed(0.5, 1, 4);
  const WorkerProgress report = meter.Report(kStart + absl::Seconds(1));
  EXPECT_EQ(report.forward_seconds(), 1.5);
  EXPECT_EQ(report.backward_seconds(), 3);
  EXPECT_EQ(report.update_seconds(), 4);
}

TEST(ProgressMeterTest, WithoutAStepTheLossIsUnknown) {
  ProgressMeter meter(0, {.steps_per_epoch = 5, .clocks_total = 10},
                      /*start_clock=*/0, kStart);
  const WorkerProgress report = meter.Report(kStart + absl::Seconds(1));
  EXPECT_TRUE(std::isnan(report.loss()));
  EXPECT_EQ(report.samples_per_second(), 0);
}

TEST(ProgressMeterTest, AnEmptyCloseIsAStepWithoutSamples) {
  ProgressMeter meter(0, {.steps_per_epoch = 5, .clocks_total = 10},
                      /*start_clock=*/0, kStart);
  meter.AddStep(0, 0, 0, kTimes);
  const WorkerProgress report = meter.Report(kStart + absl::Seconds(1));
  EXPECT_EQ(report.clock(), 1);
  EXPECT_TRUE(std::isnan(report.loss()));
}

TEST(ProgressMeterTest, ALaterStartHasItsClockClosedAndNoSamples) {
  const ProgressMeter meter(1, {.steps_per_epoch = 5, .clocks_total = 10},
                            /*start_clock=*/7, kStart);
  const WorkerProgress totals = meter.Totals(kStart + absl::Seconds(1));
  EXPECT_EQ(totals.clock(), 7);
  EXPECT_EQ(totals.samples(), 0u);
}

TEST(ProgressMeterTest, AStepOfAnotherRankCountsWithoutItsClock) {
  ProgressMeter meter(0, {.steps_per_epoch = 5, .clocks_total = 10},
                      /*start_clock=*/0, kStart);
  meter.AddStep(9, 4, 8, {});
  meter.AddStepOfOther(2, 1, {.data = absl::Seconds(3)});
  const WorkerProgress totals = meter.Totals(kStart + absl::Seconds(1));
  EXPECT_EQ(totals.clock(), 10);
  EXPECT_EQ(totals.samples(), 6u);
  EXPECT_EQ(totals.data_seconds(), 3);
  EXPECT_EQ(totals.loss(), 1.5);
}

TEST(ProgressMeterTest, TheLossScaleIsTheLatest) {
  ProgressMeter meter(0, {.steps_per_epoch = 5, .clocks_total = 10},
                      /*start_clock=*/0, kStart);
  EXPECT_EQ(meter.Report(kStart).loss_scale(), 0);
  meter.SetLossScale(65536, 0);
  meter.SetLossScale(32768, 1);
  EXPECT_EQ(meter.Report(kStart).loss_scale(), 32768);
  EXPECT_EQ(meter.Totals(kStart).overflowed_steps(), 1u);
}

}  // namespace
}  // namespace syncline::worker
