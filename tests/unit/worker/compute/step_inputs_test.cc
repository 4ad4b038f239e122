#include "worker/compute/step_inputs.h"

#include <vector>

#include "gtest/gtest.h"
#include "tests/testing/poisoned_device.h"

namespace syncline::worker {
namespace {

std::vector<float> Read(Stream& stream, const void* from, size_t count) {
  std::vector<float> values(count);
  stream.CopyToHost(values.data(), from, count * sizeof(float));
  return values;
}

TEST(StepInputsTest, OnTheHostEverythingIsUsedWhereItIs) {
  CpuStream stream(&ThisMachine());
  StepInputs inputs(&ThisMachine());
  float value = 1;
  EXPECT_EQ(*inputs.Constant(&value, sizeof(value)), &value);
  EXPECT_EQ(*inputs.Copy(stream, 0, &value, sizeof(value)), &value);
}

TEST(StepInputsTest, AnotherDeviceGetsACopyOfEachStepsArrays) {
  testing::PoisonedDevice device;
  const auto stream = *device.MakeStream();
  StepInputs inputs(&device);
  std::vector<float> feed = {1, 2, 3};
  const void* const first = *inputs.Copy(*stream, 2, feed.data(), 12);
  EXPECT_EQ(Read(*stream, first, 3), feed);
  feed = {4, 5, 6};
  const void* const second = *inputs.Copy(*stream, 2, feed.data(), 12);
  EXPECT_EQ(second, first);  // the slot's memory
  EXPECT_EQ(Read(*stream, second, 3), feed);
  feed.assign(5000, 7);
  const void* const large = *inputs.Copy(*stream, 2, feed.data(), 20000);
  EXPECT_EQ(Read(*stream, large, 5000), feed);
}

TEST(StepInputsTest, AConstantIsCopiedOnce) {
  testing::PoisonedDevice device;
  const auto stream = *device.MakeStream();
  StepInputs inputs(&device);
  const std::vector<float> constant = {1, 2};
  const void* const copy = *inputs.Constant(constant.data(), 8);
  EXPECT_EQ(Read(*stream, copy, 2), constant);
  const int launches = device.launches();
  EXPECT_EQ(*inputs.Constant(constant.data(), 8), copy);
  EXPECT_EQ(device.launches(), launches);
}

}  // namespace
}  // namespace syncline::worker
