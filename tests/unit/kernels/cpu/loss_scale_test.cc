// Goal: numbers are multiplied in place, and the first that is then not finite
// is reported. Method: arrays of one and of several pieces and threads.

#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/device/kernel_table.h"
#include "kernels/device/loss_scale_kernels.h"
#include "kernels/threads.h"

namespace syncline {
namespace {

constexpr float kLargest = std::numeric_limits<float>::max();

class CpuLossScaleTest : public ::testing::TestWithParam<int> {
 protected:
  CpuLossScaleTest() : stream_(*ThisMachine().MakeStream()) {
    SetComputeThreads(GetParam());
  }
  ~CpuLossScaleTest() override { SetComputeThreads(1); }

  DataError Scale(float factor, std::vector<float>* x) {
    DataError error;
    ThisMachine().kernels().loss_scale->scale(*stream_,
                                              static_cast<int64_t>(x->size()),
                                              &factor, x->data(), {&error, 3});
    return error;
  }

  const std::unique_ptr<Stream> stream_;
};

TEST_P(CpuLossScaleTest, MultipliesInPlace) {
  for (const size_t n : {size_t{0}, size_t{1}, size_t{4097}, size_t{200000}}) {
    std::vector<float> x(n);
    for (size_t i = 0; i < n; ++i) x[i] = static_cast<float>(i) + 0.1f;
    std::vector<float> want = x;
    for (float& value : want) value *= 0.25f;
    EXPECT_EQ(Scale(0.25f, &x).node, DataError::kNone);
    EXPECT_EQ(x, want);
  }
}

TEST_P(CpuLossScaleTest, ReportsTheFirstThatIsNotFinite) {
  std::vector<float> x(200000, 1);
  x[190000] = std::numeric_limits<float>::quiet_NaN();
  x[70001] = kLargest;  // overflows here
  const DataError error = Scale(2, &x);
  EXPECT_EQ(error.node, 3);
  EXPECT_EQ(error.kind, 0);
  EXPECT_EQ(error.position, 70001);
  EXPECT_EQ(x[70000], 2);
}

TEST_P(CpuLossScaleTest, WithoutARecordNothingIsReported) {
  std::vector<float> x = {kLargest};
  const float factor = 2;
  ThisMachine().kernels().loss_scale->scale(*stream_, 1, &factor, x.data(), {});
  EXPECT_EQ(x[0], std::numeric_limits<float>::infinity());
}

INSTANTIATE_TEST_SUITE_P(Threads, CpuLossScaleTest, ::testing::Values(1, 3));

}  // namespace
}  // namespace syncline
