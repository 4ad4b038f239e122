// Goal: of what threads of all blocks report, the first node's lowest position
// is kept. Method: a kernel that reports from every thread, on an emulated
// device.

#include "kernels/cuda/report.h"

#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/launch.h"
#include "tests/testing/cuda_emulator/emulated_device.h"

namespace syncline {
namespace {

TEST(CudaReportTest, TheFirstNodeKeepsItsLowestPosition) {
  for (const uint64_t seed : {1, 2, 3}) {
    testing::EmulatedDevice device(seed);
    const auto stream = *device.MakeStream();
    const DataError none;
    const DeviceMemory memory = *Upload(device, &none, sizeof(none));
    for (const int32_t node : {5, 6}) {
      const cuda::Reporter reporter = cuda::OnDevice(
          ErrorSlot{.record = memory.as<DataError>(), .node = node});
      cuda::LaunchElements(*stream, 1000, [=](int64_t i) {
        if (i >= 300) reporter.Report(/*kind=*/2, /*position=*/i, -i);
      });
    }
    DataError kept;
    stream->CopyToHost(&kept, memory.data(), sizeof(kept));
    ASSERT_EQ(stream->Synchronize(), absl::OkStatus());
    EXPECT_EQ(kept.node, 5);
    EXPECT_EQ(kept.kind, 2);
    EXPECT_EQ(kept.position, 300);
    EXPECT_EQ(kept.value, -300);
    EXPECT_EQ(kept.lock, 0);
  }
}

// All elements may be wrong: of 16 million, not each takes the lock.
TEST(CudaReportTest, ThreadsThatComeTooLateTakeNoLock) {
  testing::EmulatedDevice device;
  const auto stream = *device.MakeStream();
  const DataError none;
  const DeviceMemory memory = *Upload(device, &none, sizeof(none));
  const auto report = [&](int32_t node) {
    const cuda::Reporter reporter = cuda::OnDevice(
        ErrorSlot{.record = memory.as<DataError>(), .node = node});
    cuda::LaunchElements(*stream, 5000,
                         [=](int64_t i) { reporter.Report(0, i, i); });
  };
  report(5);
  const int64_t locks = device.locks();
  EXPECT_GT(locks, 0);
  EXPECT_LT(locks, 50);  // whenever the position falls, in a drawn order
  report(5);
  report(6);
  EXPECT_EQ(device.locks(), locks);
  EXPECT_EQ(stream->Synchronize(), absl::OkStatus());
}

TEST(CudaReportTest, ANullRecordTakesNothing) {
  testing::EmulatedDevice device;
  const auto stream = *device.MakeStream();
  const cuda::Reporter reporter = cuda::OnDevice(ErrorSlot{});
  cuda::LaunchElements(*stream, 32,
                       [=](int64_t i) { reporter.Report(0, i, i); });
  EXPECT_EQ(stream->Synchronize(), absl::OkStatus());
}

}  // namespace
}  // namespace syncline
