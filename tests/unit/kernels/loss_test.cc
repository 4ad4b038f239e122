// Goal: the fused losses and their gradients in float32. Method: against the
// reference in double, with and without a gradient, gradient over the logits;
// logits so large that an unshifted exponential would overflow.

#include "kernels/loss.h"

#include "kernels/reference/reference_loss.h"
#include "tests/testing/arrays.h"

namespace syncline {
namespace {

using testing::DoubleArray;
using testing::ExpectNear;
using testing::RandomArray;
using testing::ToFloats;

using Kernel = std::function<double(const float* x, float* dx)>;

void ExpectReference(const DoubleArray& x, const Kernel& kernel, double want,
                     const DoubleArray& want_dx) {
  const std::vector<float> fx = ToFloats(x.values);
  EXPECT_NEAR(kernel(fx.data(), nullptr), want, 1e-5 * std::fabs(want));
  std::vector<float> dx(fx.size(), 99.0f);
  EXPECT_NEAR(kernel(fx.data(), dx.data()), want, 1e-5 * std::fabs(want));
  ExpectNear(dx, want_dx.values, 1e-6);
  std::vector<float> in_place = fx;
  kernel(in_place.data(), in_place.data());
  EXPECT_EQ(in_place, dx);
}

TEST(LossTest, SoftmaxCrossEntropyIsTheReference) {
  for (int64_t classes : {2, 10, 33}) {
    const DoubleArray x = RandomArray({17, classes}, classes);
    std::vector<double> labels(17);
    for (int i = 0; i < 17; ++i) labels[i] = (i * 7) % classes;
    const std::vector<float> float_labels = ToFloats(labels);
    ExpectReference(
        x,
        [&](const float* in, float* dx) {
          return SoftmaxCrossEntropy(17, classes, in, float_labels.data(), dx);
        },
        reference::SoftmaxCrossEntropy(x, labels),
        reference::SoftmaxCrossEntropyGradient(x, labels));
  }
}

TEST(LossTest, RowsWithANegativeLabelCountForNothing) {
  constexpr int64_t kClasses = 33;
  constexpr int64_t kRows = 4;
  const DoubleArray x = RandomArray({kRows, kClasses}, 1);
  const std::vector<float> labels = {5, -1, 32, -1};
  double want = 0;
  DoubleArray want_dx = x;
  std::fill(want_dx.values.begin(), want_dx.values.end(), 0.0);
  for (const int64_t row : {0, 2}) {
    DoubleArray alone = RandomArray({1, kClasses}, 1);
    const auto at = x.values.begin() + row * kClasses;
    alone.values.assign(at, at + kClasses);
    want += 0.5 * reference::SoftmaxCrossEntropy(alone, {labels[row]});
    const auto gradient = ToFloats(
        reference::SoftmaxCrossEntropyGradient(alone, {labels[row]}).values);
    for (int64_t i = 0; i < kClasses; ++i) {
      want_dx.values[row * kClasses + i] = 0.5 * gradient[i];
    }
  }
  ExpectReference(
      x,
      [&](const float* in, float* dx) {
        return SoftmaxCrossEntropy(kRows, kClasses, in, labels.data(), dx,
                                   /*weight=*/0.5f);
      },
      want, want_dx);
}

TEST(LossTest, SigmoidCrossEntropyIsTheReference) {
  const DoubleArray x = RandomArray({37, 1}, 1);
  std::vector<double> labels(37);
  for (int i = 0; i < 37; ++i) labels[i] = i % 3 == 0;
  const std::vector<float> float_labels = ToFloats(labels);
  ExpectReference(
      x,
      [&](const float* in, float* dx) {
        return SigmoidCrossEntropy(37, in, float_labels.data(), dx);
      },
      reference::SigmoidCrossEntropy(x, labels),
      reference::SigmoidCrossEntropyGradient(x, labels));
}

TEST(LossTest, MeanSquaredErrorIsTheReference) {
  const DoubleArray x = RandomArray({9, 13}, 1);
  const std::vector<double> targets = RandomArray({9, 13}, 2).values;
  const std::vector<float> float_targets = ToFloats(targets);
  ExpectReference(
      x,
      [&](const float* in, float* dx) {
        return MeanSquaredError(9, 13, in, float_targets.data(), dx);
      },
      reference::MeanSquaredError(x, targets),
      reference::MeanSquaredErrorGradient(x, targets));
}

TEST(LossTest, LargeLogitsAreFinite) {
  const std::vector<float> logits = {1e4f, -1e4f};
  std::vector<float> dx(2);
  const std::vector<float> second = {1};
  EXPECT_NEAR(
      SoftmaxCrossEntropy(1, 2, logits.data(), second.data(), dx.data()), 2e4,
      1);
  EXPECT_EQ(dx, (std::vector<float>{1, -1}));
  const std::vector<float> bits = {0, 1};
  EXPECT_NEAR(SigmoidCrossEntropy(2, logits.data(), bits.data(), dx.data()),
              2e4, 1);
  EXPECT_EQ(dx, (std::vector<float>{1, -1}));
}

}  // namespace
}  // namespace syncline
