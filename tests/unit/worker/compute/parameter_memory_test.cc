#include "worker/compute/parameter_memory.h"

#include <algorithm>
#include <vector>

#include "gtest/gtest.h"
#include "tests/testing/poisoned_device.h"

namespace syncline::worker {
namespace {

const std::vector<int64_t> kCounts = {3, 17, 1};

TEST(ParameterMemoryTest, ArraysBeginAtCacheLines) {
  EXPECT_EQ(ParameterMemory::BytesOf(1), 64);
  EXPECT_EQ(ParameterMemory::BytesOf(17), 128);
  EXPECT_EQ(ParameterMemory::BytesFor(kCounts), 64 + 128 + 64);
  EXPECT_EQ(ParameterMemory::OffsetsFor(kCounts),
            (std::vector<int64_t>{0, 64, 192}));
}

TEST(ParameterMemoryTest, OnTheHostBothAreOne) {
  CpuStream stream(&ThisMachine());
  ParameterMemory memory;
  ASSERT_TRUE(
      memory.Allocate(ThisMachine(), stream, kCounts, /*shared=*/false).ok());
  for (size_t i = 0; i < kCounts.size(); ++i) {
    EXPECT_EQ(memory.host(i).data(), memory.on_device()[i]);
    EXPECT_EQ(memory.host(i).size(), static_cast<size_t>(kCounts[i]));
  }
}

TEST(ParameterMemoryTest, OfAnotherDeviceThereIsACopy) {
  testing::PoisonedDevice device;
  const auto stream = *device.MakeStream();
  ParameterMemory memory;
  ASSERT_TRUE(memory.Allocate(device, *stream, kCounts, /*shared=*/false).ok());
  std::fill(memory.host(1).begin(), memory.host(1).end(), 2.0f);
  memory.CopyToDevice(*stream);
  std::fill(memory.host(1).begin(), memory.host(1).end(), 0.0f);
  memory.CopyToHost(*stream, 1);
  EXPECT_EQ(std::vector<float>(memory.host(1).begin(), memory.host(1).end()),
            std::vector<float>(17, 2.0f));
}

TEST(ParameterMemoryTest, SharedArraysLieInOneRegion) {
  CpuStream stream(&ThisMachine());
  ParameterMemory memory;
  ASSERT_TRUE(
      memory.Allocate(ThisMachine(), stream, kCounts, /*shared=*/true).ok());
  ASSERT_NE(memory.region(), nullptr);
  const auto* const begin =
      reinterpret_cast<const float*>(memory.region()->data());
  EXPECT_EQ(memory.host(0).data(), begin);
  EXPECT_EQ(memory.host(2).data(), begin + 192 / sizeof(float));
}

}  // namespace
}  // namespace syncline::worker
