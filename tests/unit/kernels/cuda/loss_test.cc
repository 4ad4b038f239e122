// Goal: losses and their gradients are those of this machine, for rows of all
// lengths and numbers. Method: drawn scores on an emulated device.

#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/device/kernel_table.h"
#include "kernels/device/loss_kernels.h"
#include "tests/testing/arrays.h"
#include "tests/testing/cuda_emulator/emulated_device.h"

namespace syncline {
namespace {

using testing::EmulatedDevice;

struct Result {
  double loss = 0;
  std::vector<float> gradient;
};

// In place: the gradient lies over the scores.
Result Compute(Device& device, LossKernels::Kernel LossKernels::*kind,
               const LossShape& s, const std::vector<float>& scores,
               const std::vector<float>& labels, bool wants_gradient) {
  const auto stream = *device.MakeStream();
  const DeviceMemory x = *Upload(device, absl::Span<const float>(scores));
  const DeviceMemory t = *Upload(device, absl::Span<const float>(labels));
  const DeviceMemory loss = *device.Allocate(sizeof(double));
  (device.kernels().loss->*kind)(*stream, s, x.as<float>(), t.as<float>(),
                                 wants_gradient ? x.as<float>() : nullptr,
                                 loss.as<double>());
  Result result;
  result.gradient.resize(scores.size());
  stream->CopyToHost(&result.loss, loss.data(), sizeof(double));
  stream->CopyToHost(result.gradient.data(), x.data(),
                     scores.size() * sizeof(float));
  EXPECT_EQ(stream->Synchronize(), absl::OkStatus());
  return result;
}

void ExpectSame(LossKernels::Kernel LossKernels::*kind, const LossShape& s,
                const std::vector<float>& labels) {
  SCOPED_TRACE(absl::StrCat(s.samples, " x ", s.positions, " x ", s.width));
  const auto scores = testing::ToFloats(
      testing::RandomArray({s.samples * s.positions * s.width}, 5).values);
  for (const bool wants_gradient : {false, true}) {
    const Result want =
        Compute(ThisMachine(), kind, s, scores, labels, wants_gradient);
    Result first;
    for (const uint64_t seed : {1, 2}) {
      EmulatedDevice device(seed);
      const Result got =
          Compute(device, kind, s, scores, labels, wants_gradient);
      EXPECT_NEAR(got.loss, want.loss, 1e-5 * std::abs(want.loss) + 1e-6);
      testing::ExpectNear(got.gradient,
                          {want.gradient.begin(), want.gradient.end()}, 1e-5);
      if (seed == 1) first = got;
      EXPECT_EQ(got.loss, first.loss);
      EXPECT_EQ(got.gradient, first.gradient);
    }
  }
}

TEST(CudaLossTest, SoftmaxCrossEntropy) {
  for (const LossShape& s :
       {LossShape{.samples = 70, .width = 10},
        LossShape{.samples = 3, .width = 1500},
        LossShape{.samples = 9000, .width = 2},
        LossShape{.samples = 5, .positions = 7, .width = 3, .ignores = true},
        LossShape{.samples = 4, .positions = 2, .width = 1, .ignores = true}}) {
    std::vector<float> labels;
    for (int64_t i = 0; i < s.samples * s.positions; ++i) {
      labels.push_back(s.ignores && i % 3 == 0 ? -1 : i % s.width);
    }
    ExpectSame(&LossKernels::softmax_cross_entropy, s, labels);
  }
}

TEST(CudaLossTest, SigmoidCrossEntropy) {
  for (const int64_t samples : {1, 300, 3000}) {
    std::vector<float> labels(samples);
    for (int64_t i = 0; i < samples; ++i) labels[i] = i % 2;
    ExpectSame(&LossKernels::sigmoid_cross_entropy, {.samples = samples},
               labels);
  }
}

TEST(CudaLossTest, MeanSquaredError) {
  for (const LossShape& s :
       {LossShape{.samples = 500}, LossShape{.samples = 3, .width = 40},
        LossShape{.samples = 2, .width = 1100}}) {
    ExpectSame(&LossKernels::mean_squared_error, s,
               testing::ToFloats(
                   testing::RandomArray({s.samples * s.width}, 6).values));
  }
}

}  // namespace
}  // namespace syncline
