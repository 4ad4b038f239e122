// Goal: a GPU's passes are timed in few steps, which stand for the others, and
// on other devices nothing is done. Method: an emulated GPU whose timers say
// what the test has them say.

#include "worker/compute/pass_timer.h"

#include <memory>
#include <optional>

#include "gtest/gtest.h"
#include "tests/testing/cuda_emulator/emulated_device.h"
#include "tests/testing/poisoned_device.h"
#include "tests/testing/status_matchers.h"

namespace syncline::worker {
namespace {

class TimedDevice : public testing::EmulatedDevice {
 public:
  absl::StatusOr<std::unique_ptr<Timer>> MakeTimer() override {
    class SetTimer : public Timer {
     public:
      explicit SetTimer(TimedDevice* device) : device_(*device) {}
      void Start(Stream&) override { ++device_.starts; }
      void Stop(Stream&) override { ++device_.stops; }
      std::optional<double> Seconds() override { return device_.seconds; }

     private:
      TimedDevice& device_;
    };
    return std::make_unique<SetTimer>(this);
  }

  int starts = 0;
  int stops = 0;
  std::optional<double> seconds = 0.5;
};

class PassTimerTest : public ::testing::Test {
 protected:
  void Step(int parts = 1, bool apart = true) {
    timer_.BeginStep();
    for (int k = 0; k < parts; ++k) {
      timer_.Begin(*stream_);
      if (apart) timer_.EndForward(*stream_);
      timer_.End(*stream_);
    }
    timer_.EndStep();
  }

  TimedDevice device_;
  const std::unique_ptr<Stream> stream_ = *device_.MakeStream();
  PassTimer timer_;
};

TEST_F(PassTimerTest, OneStepOfSixteenStandsForTheOthers) {
  ASSERT_OK(timer_.Allocate(device_));
  const DeviceMeter& meter = device_.meter();
  Step(3);
  EXPECT_EQ(meter.pass_seconds(DeviceMeter::kForward), 1.5) << "three parts";
  EXPECT_EQ(meter.pass_seconds(DeviceMeter::kBackward), 1.5);
  for (int64_t k = 2; k < PassTimer::kPeriod; ++k) Step();
  EXPECT_EQ(meter.pass_seconds(DeviceMeter::kForward), 2) << "the second";
  EXPECT_EQ(device_.starts, 8);
  EXPECT_EQ(device_.stops, 8);
  Step();
  EXPECT_EQ(meter.pass_seconds(DeviceMeter::kForward), 2 + 14 * 0.5);
  EXPECT_EQ(device_.starts, 10);
}

TEST_F(PassTimerTest, PassesThatAreNotApartShareTheirTime) {
  ASSERT_OK(timer_.Allocate(device_));
  const DeviceMeter& meter = device_.meter();
  Step(1, /*apart=*/false);
  EXPECT_NEAR(meter.pass_seconds(DeviceMeter::kForward), 0.5 / 3, 1e-9);
  EXPECT_NEAR(meter.pass_seconds(DeviceMeter::kBackward), 1.0 / 3, 1e-9);
  Step();  // the same time each
  for (int64_t k = 2; k < PassTimer::kPeriod; ++k) Step(2, /*apart=*/false);
  EXPECT_NEAR(meter.pass_seconds(DeviceMeter::kForward),
              0.5 / 3 + 0.5 + 14 * 2 * 0.25, 1e-9);
}

TEST_F(PassTimerTest, AStepWithoutATimeDoesNotCount) {
  ASSERT_OK(timer_.Allocate(device_));
  device_.seconds = std::nullopt;
  Step();
  EXPECT_EQ(device_.meter().pass_seconds(DeviceMeter::kForward), 0);
}

TEST_F(PassTimerTest, OtherDevicesAreLeftAlone) {
  testing::PoisonedDevice other;
  const std::unique_ptr<Stream> stream = *other.MakeStream();
  PassTimer timer;
  ASSERT_OK(timer.Allocate(other));
  timer.BeginStep();
  timer.Begin(*stream);
  timer.EndForward(*stream);
  timer.End(*stream);
  timer.EndStep();
  EXPECT_EQ(device_.starts, 0);
}

}  // namespace
}  // namespace syncline::worker
