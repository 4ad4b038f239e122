// Goal: functions of single float32 numbers and their gradients on this
// machine's processors. Method: against the reference in double over a range of
// inputs, in place and accumulating; NaN and infinities as documented.

#include <limits>
#include <tuple>

#include "kernels/cpu/cpu_device.h"
#include "kernels/device/kernel_table.h"
#include "kernels/device/pointwise_kernels.h"
#include "kernels/reference/reference_pointwise.h"
#include "tests/testing/arrays.h"

namespace syncline {
namespace {

using testing::DoubleArray;
using testing::ExpectNear;
using testing::RandomArray;
using testing::ToFloats;

constexpr double kTolerance = 1e-6;

std::vector<float> Forward(PointwiseFunction function, std::vector<float> x,
                           const PointwiseSettings& settings = {}) {
  CpuStream stream(&ThisMachine());
  (*ThisMachine().kernels().pointwise)[function].forward(
      stream, settings, static_cast<int64_t>(x.size()), x.data(), x.data());
  return x;
}

void Backward(PointwiseFunction function, const std::vector<float>& saved,
              const std::vector<float>& dy, bool accumulate, float* dx) {
  CpuStream stream(&ThisMachine());
  (*ThisMachine().kernels().pointwise)[function].backward(
      stream, {}, static_cast<int64_t>(dy.size()), saved.data(), dy.data(),
      accumulate, dx);
}

// 401 inputs from `least` on, none of them 0.
template <typename F>
void ExpectReference(PointwiseFunction function, double least = -12.018,
                     double step = 0.06) {
  DoubleArray x({401});
  for (int i = 0; i < 401; ++i) {
    x.values[i] = static_cast<float>(least + i * step);
  }
  const std::vector<float> fx = ToFloats(x.values);
  std::vector<float> y(fx.size());
  CpuStream stream(&ThisMachine());
  (*ThisMachine().kernels().pointwise)[function].forward(stream, {}, 401,
                                                         fx.data(), y.data());
  ExpectNear(y, reference::Unary<F>(x).values, kTolerance);
  EXPECT_EQ(Forward(function, fx), y);  // in place

  const DoubleArray dy = RandomArray(x.dims, 5);
  const std::vector<float> fdy = ToFloats(dy.values);
  std::vector<double> want = reference::UnaryGradient<F>(x, dy)[0].values;
  const bool reads_input = GradientReadsOf(function) == GradientReads::kInput;
  const std::vector<float>& saved = reads_input ? fx : y;
  std::vector<float> dx(fx.size(), 99.0f);
  Backward(function, saved, fdy, /*accumulate=*/false, dx.data());
  ExpectNear(dx, want, kTolerance);
  std::vector<float> in_place = fdy;
  Backward(function, saved, in_place, /*accumulate=*/false, in_place.data());
  EXPECT_EQ(in_place, dx);
  Backward(function, saved, fdy, /*accumulate=*/true, dx.data());
  for (double& v : want) v *= 2;
  ExpectNear(dx, want, 2 * kTolerance);
}

TEST(PointwiseTest, FunctionsAreTheReference) {
  using P = PointwiseFunction;
  ExpectReference<reference::Relu>(P::kRelu);
  ExpectReference<reference::Sigmoid>(P::kSigmoid);
  ExpectReference<reference::Tanh>(P::kTanh);
  ExpectReference<reference::Gelu>(P::kGelu);
  ExpectReference<reference::GeluTanh>(P::kGeluTanh);
  ExpectReference<reference::Exp>(P::kExp, -4, 0.0203);
  ExpectReference<reference::Negate>(P::kNegate);
  ExpectReference<reference::SquareRoot>(P::kSqrt, 0.01, 0.0203);
  ExpectReference<reference::ErrorFunction>(P::kErf, -4, 0.0203);
}

TEST(PointwiseTest, NanStaysNanInAllFunctions) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (size_t f = 0; f < kPointwiseFunctions; ++f) {
    const auto function = static_cast<PointwiseFunction>(f);
    for (const float v : Forward(function, std::vector<float>(9, kNan),
                                 {.first = 1, .second = 0.5f})) {
      // All comparisons with a threshold are false for NaN.
      if (function == PointwiseFunction::kThresholdedRelu) continue;
      EXPECT_TRUE(std::isnan(v)) << f;
    }
  }
}

TEST(PointwiseTest, LargeInputsSaturate) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> x = {-infinity, -1e30f, 1e30f, infinity};
  EXPECT_EQ(Forward(PointwiseFunction::kSigmoid, x),
            (std::vector<float>{0, 0, 1, 1}));
  EXPECT_EQ(Forward(PointwiseFunction::kTanh, x),
            (std::vector<float>{-1, -1, 1, 1}));
}

TEST(PointwiseTest, TheRootOfWhatIsNegativeIsNan) {
  EXPECT_TRUE(std::isnan(Forward(PointwiseFunction::kSqrt, {-1})[0]));
}

TEST(PointwiseTest, SettingsReachTheFunctionInTheOrderOfItsFields) {
  // max(0, min(1, 0.25 x + 0.125))
  EXPECT_EQ(Forward(PointwiseFunction::kHardSigmoid, {1, -1, 9},
                    {.first = 0.25f, .second = 0.125f}),
            (std::vector<float>{0.375f, 0, 1}));
  EXPECT_EQ(Forward(PointwiseFunction::kLeakyRelu, {2, -2}, {.first = 0.5f}),
            (std::vector<float>{2, -1}));
}

TEST(PointwiseTest, OnlyFunctionsThatAreConstantBetweenStepsHaveNoGradient) {
  const PointwiseKernels& kernels = *ThisMachine().kernels().pointwise;
  for (size_t f = 0; f < kPointwiseFunctions; ++f) {
    const auto function = static_cast<PointwiseFunction>(f);
    EXPECT_NE(kernels[function].forward, nullptr);
    EXPECT_EQ(kernels[function].backward == nullptr,
              GradientReadsOf(function) == GradientReads::kNoGradient);
  }
}

}  // namespace
}  // namespace syncline
