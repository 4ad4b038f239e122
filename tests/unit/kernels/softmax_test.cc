// Goal: float32 softmax and log-softmax with gradients. Method: against the
// reference in double, contiguous and strided lines, in place, accumulating;
// inputs so large that an unshifted exponential would overflow.

#include "kernels/softmax.h"

#include "kernels/reference/reference_loss.h"
#include "tests/testing/arrays.h"

namespace syncline {
namespace {

using testing::DoubleArray;
using testing::ExpectNear;
using testing::RandomArray;
using testing::ToFloats;

constexpr double kTolerance = 2e-6;

struct Kernels {
  void (*forward)(const SoftmaxShape&, const float*, float*);
  void (*gradient)(const SoftmaxShape&, const float*, const float*, bool,
                   float*);
};

void ExpectReference(const Kernels& kernels, const SoftmaxShape& s,
                     const DoubleArray& x, const DoubleArray& want,
                     const DoubleArray& dy, const DoubleArray& want_dx) {
  const std::vector<float> fx = ToFloats(x.values);
  std::vector<float> y(fx.size());
  kernels.forward(s, fx.data(), y.data());
  ExpectNear(y, want.values, kTolerance);
  std::vector<float> in_place = fx;
  kernels.forward(s, in_place.data(), in_place.data());
  EXPECT_EQ(in_place, y);

  const std::vector<float> fdy = ToFloats(dy.values);
  std::vector<float> dx(fx.size(), 99.0f);
  kernels.gradient(s, y.data(), fdy.data(), false, dx.data());
  ExpectNear(dx, want_dx.values, kTolerance);
  in_place = fdy;
  kernels.gradient(s, y.data(), in_place.data(), false, in_place.data());
  EXPECT_EQ(in_place, dx);
  kernels.gradient(s, y.data(), fdy.data(), true, dx.data());
  std::vector<double> twice = want_dx.values;
  for (double& v : twice) v *= 2;
  ExpectNear(dx, twice, 2 * kTolerance);
}

TEST(SoftmaxTest, BothAreTheReference) {
  for (const auto& [outer, n, inner] :
       {std::tuple{1, 1, 1}, {7, 10, 1}, {3, 33, 1}, {2, 5, 3}, {1, 9, 17}}) {
    const SoftmaxShape s = {outer, n, inner};
    const DoubleArray x = RandomArray({outer, n, inner}, 1);
    const DoubleArray dy = RandomArray({outer, n, inner}, 2);
    ExpectReference({Softmax, SoftmaxGradient}, s, x,
                    reference::Softmax(x, 1, 2), dy,
                    reference::SoftmaxGradient(x, 1, 2, dy)[0]);
    ExpectReference({LogSoftmax, LogSoftmaxGradient}, s, x,
                    reference::LogSoftmax(x, 1, 2), dy,
                    reference::LogSoftmaxGradient(x, 1, 2, dy)[0]);
  }
}

TEST(SoftmaxTest, LargeInputsDoNotOverflow) {
  const std::vector<float> x = {1e4f, 1e4f - 1, -1e4f};
  std::vector<float> y(3);
  Softmax({1, 3, 1}, x.data(), y.data());
  ExpectNear(y, {0.7310585786, 0.2689414214, 0}, 1e-6);
  LogSoftmax({1, 3, 1}, x.data(), y.data());
  ExpectNear(y, {-0.3132616875, -1.3132616875, -20000.3132616875}, 1e-6);
}

}  // namespace
}  // namespace syncline
