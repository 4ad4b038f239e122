// Goal: statistics of nothing are those of this machine, and no memory is left
// as it was. Method: empty batches and planes, here and on an emulated device.
// (What has elements is worker_op_cuda_test's.)

#include <cmath>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/device/kernel_table.h"
#include "kernels/device/normalization_kernels.h"
#include "tests/testing/cuda_emulator/emulated_device.h"

namespace syncline {
namespace {

using testing::EmulatedDevice;

const NormalizationShape kEmpty[] = {
    {.batch = 0, .channels = 3, .plane = 2, .across_batch = true},
    {.batch = 2, .channels = 3, .plane = 0, .across_batch = true},
    {.batch = 0, .channels = 3, .plane = 0, .across_batch = true},
    {.batch = 0, .channels = 3, .plane = 1, .across_batch = true},
    {.batch = 2, .channels = 4, .plane = 0, .group = 2},
    {.batch = 0, .channels = 4, .plane = 5, .group = 2},
    {.batch = 2, .channels = 0, .plane = 5, .across_batch = true},
};

std::string NameOf(const NormalizationShape& s) {
  return absl::StrCat("[", s.batch, ", ", s.channels, ", ", s.plane, "]",
                      s.across_batch ? " across the batch" : "");
}

// Means, and then variances.
std::vector<float> MomentsOn(Device& device, const NormalizationShape& s) {
  const auto stream = *device.MakeStream();
  const int64_t count = s.statistic_count();
  const std::vector<float> before(2 * count + 1, 42.0f);
  const DeviceMemory x = *Upload(device, absl::Span<const float>(before));
  const DeviceMemory both = *Upload(device, absl::Span<const float>(before));
  device.kernels().normalization->moments(
      *stream, s, x.as<float>(), both.as<float>(), both.as<float>() + count);
  std::vector<float> got(2 * count);
  stream->CopyToHost(got.data(), both.data(), got.size() * sizeof(float));
  EXPECT_EQ(stream->Synchronize(), absl::OkStatus());
  return got;
}

TEST(CudaNormalizationTest, MomentsOfNothing) {
  for (const NormalizationShape& s : kEmpty) {
    SCOPED_TRACE(NameOf(s));
    EmulatedDevice device;
    const std::vector<float> got = MomentsOn(device, s);
    const std::vector<float> want = MomentsOn(ThisMachine(), s);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) {
      if (std::isnan(want[i])) {
        EXPECT_TRUE(std::isnan(got[i])) << i << " " << got[i];
      } else {
        EXPECT_EQ(got[i], want[i]) << i;
      }
    }
  }
}

// Sums by statistic of dy * scale, and of that times the normalised x.
std::vector<double> GradientSumsOn(Device& device,
                                   const NormalizationShape& s) {
  const auto stream = *device.MakeStream();
  const std::vector<float> ones(s.statistic_count() + s.channels + 1, 1.0f);
  const std::vector<double> before(GradientSums(s) + 1, 42.0);
  const DeviceMemory one = *Upload(device, absl::Span<const float>(ones));
  const DeviceMemory sums = *Upload(device, absl::Span<const double>(before));
  DeviceNormalizationGradient g = {};
  g.x = g.dy = g.mean = g.inverse = g.scale = one.as<float>();
  g.sums = sums.as<double>();
  device.kernels().normalization->sum_gradient(*stream, s, g);
  std::vector<double> got(2 * s.statistic_count());
  stream->CopyToHost(got.data(), sums.data(), got.size() * sizeof(double));
  EXPECT_EQ(stream->Synchronize(), absl::OkStatus());
  return got;
}

TEST(CudaNormalizationTest, GradientSumsOfNothing) {
  for (const NormalizationShape& s : kEmpty) {
    SCOPED_TRACE(NameOf(s));
    EmulatedDevice device;
    EXPECT_EQ(GradientSumsOn(device, s), GradientSumsOn(ThisMachine(), s));
  }
}

}  // namespace
}  // namespace syncline
