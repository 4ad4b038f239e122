// Goal: all bytes that are copied count, and the time of those copies that are
// timed stands for that of the others. Method: rounds of copies with timers
// that say what the test has them say.

#include "kernels/device/device_meter.h"

#include <memory>
#include <optional>

#include "gtest/gtest.h"
#include "kernels/cpu/cpu_device.h"

namespace syncline {
namespace {

// Of all timers: what a stretch takes, and how many were begun and ended.
struct Clockwork {
  std::optional<double> seconds;
  int timers = 0;
  int starts = 0;
  int stops = 0;
};

class MadeUpTimer : public Timer {
 public:
  explicit MadeUpTimer(Clockwork* clockwork) : clockwork_(*clockwork) {
    ++clockwork_.timers;
  }
  void Start(Stream&) override { ++clockwork_.starts; }
  void Stop(Stream&) override { ++clockwork_.stops; }
  std::optional<double> Seconds() override { return clockwork_.seconds; }

 private:
  Clockwork& clockwork_;
};

class CopySamplerTest : public ::testing::Test {
 protected:
  void Copy(DeviceMeter::Direction direction, size_t bytes) {
    sampler_.Begin(*stream_, direction, bytes);
    sampler_.End(*stream_);
  }
  // A step: values in, two gradients out.
  void Round() {
    Copy(DeviceMeter::kToDevice, 100);
    Copy(DeviceMeter::kToHost, 40);
    Copy(DeviceMeter::kToHost, 60);
    sampler_.OnSynchronized();
  }

  const std::unique_ptr<Stream> stream_ = *ThisMachine().MakeStream();
  Clockwork clockwork_;
  DeviceMeter meter_;
  CopySampler sampler_{
      &meter_, [this] { return std::make_unique<MadeUpTimer>(&clockwork_); }};
};

TEST_F(CopySamplerTest, AllBytesCountAndOneRoundOfSeventeenIsTimed) {
  clockwork_.seconds = 0.5;
  Round();
  EXPECT_EQ(meter_.copy_seconds(DeviceMeter::kToDevice), 0.5);
  EXPECT_EQ(meter_.copy_seconds(DeviceMeter::kToHost), 1);
  for (int64_t k = 1; k < CopySampler::kPeriod; ++k) Round();
  EXPECT_EQ(clockwork_.starts, 3) << "rounds between are not timed";
  EXPECT_EQ(meter_.copy_seconds(DeviceMeter::kToHost), 1);
  Round();
  EXPECT_EQ(clockwork_.starts, 6);
  EXPECT_EQ(clockwork_.stops, 6);
  EXPECT_EQ(clockwork_.timers, 3) << "they are used again";
  EXPECT_EQ(meter_.copied_bytes(DeviceMeter::kToDevice), 1800u);
  EXPECT_EQ(meter_.copied_bytes(DeviceMeter::kToHost), 1800u);
  // The second one that is timed stands for 17.
  EXPECT_EQ(meter_.copy_seconds(DeviceMeter::kToDevice), 0.5 * 18);
  EXPECT_EQ(meter_.copy_seconds(DeviceMeter::kToHost), 18);
}

// A job with as many parts a step as there are rounds in a period would have
// the same part timed each time.
TEST_F(CopySamplerTest, ThePeriodIsPrime) {
  for (int64_t k = 2; k < CopySampler::kPeriod; ++k) {
    EXPECT_NE(CopySampler::kPeriod % k, 0) << k;
  }
}

TEST_F(CopySamplerTest, WhatCannotBeTimedHasBytesAlone) {
  clockwork_.seconds = std::nullopt;  // captured in a graph
  Round();
  EXPECT_EQ(meter_.copied_bytes(DeviceMeter::kToDevice), 100u);
  EXPECT_EQ(meter_.copy_seconds(DeviceMeter::kToDevice), 0);
  CopySampler without(&meter_, [] { return std::unique_ptr<Timer>(); });
  without.Begin(*stream_, DeviceMeter::kToHost, 7);
  without.End(*stream_);
  without.OnSynchronized();
  EXPECT_EQ(meter_.copied_bytes(DeviceMeter::kToHost), 107u);
  EXPECT_EQ(meter_.copy_seconds(DeviceMeter::kToHost), 0);
}

TEST_F(CopySamplerTest, ManyCopiesTakeABoundedNumberOfTimers) {
  clockwork_.seconds = 0.25;
  constexpr size_t kCopies = 2 * CopySampler::kTimedMax;
  for (size_t k = 0; k < kCopies; ++k) Copy(DeviceMeter::kToHost, 1);
  sampler_.OnSynchronized();
  EXPECT_EQ(static_cast<size_t>(clockwork_.timers), CopySampler::kTimedMax);
  EXPECT_EQ(meter_.copy_seconds(DeviceMeter::kToHost),
            0.25 * static_cast<double>(kCopies))
      << "the others took as long";
}

}  // namespace
}  // namespace syncline
