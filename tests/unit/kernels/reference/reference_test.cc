// Goal: the reference gradients, which every kernel is held against, are
// right. Method: in double, each gradient of a weighted sum of the outputs
// against central differences of the forward function.

#include "kernels/reference/reference.h"

#include "kernels/reference/reference_loss.h"
#include "kernels/reference/reference_matrix.h"
#include "kernels/reference/reference_movement.h"
#include "tests/testing/arrays.h"

namespace syncline {
namespace {

using reference::Dims;
using testing::Dot;
using testing::DoubleArray;
using testing::ExpectNear;
using testing::FiniteDifferences;
using testing::RandomArray;

using Inputs = std::vector<DoubleArray>;
using Forward = std::function<DoubleArray(const Inputs&)>;
using Gradient =
    std::function<std::vector<DoubleArray>(const Inputs&, const DoubleArray&)>;

void ExpectGradient(const std::vector<Dims>& shapes, const Forward& forward,
                    const Gradient& gradient) {
  Inputs in;
  for (const Dims& dims : shapes) {
    in.push_back(RandomArray(dims, 100 + in.size()));
  }
  const DoubleArray dy = RandomArray(forward(in).dims, 7);
  const std::vector<DoubleArray> got = gradient(in, dy);
  ASSERT_EQ(got.size(), in.size());
  for (size_t i = 0; i < in.size(); ++i) {
    SCOPED_TRACE(::testing::Message() << "input " << i);
    ASSERT_EQ(got[i].dims, in[i].dims);
    ExpectNear(
        got[i].values,
        FiniteDifferences(in[i].values,
                          [&] { return Dot(forward(in).values, dy.values); }),
        1e-8);
  }
}

TEST(ReferenceTest, BinaryGradientsWithBroadcastingOnEitherSide) {
  const std::vector<std::vector<Dims>> shapes = {
      {{2, 3}, {2, 3}}, {{4, 3}, {3}},       {{3}, {4, 3}},
      {{2, 3}, {}},     {{}, {2, 3}},        {{2, 1, 3}, {4, 1}},
      {{5, 1}, {1, 4}}, {{2, 3, 4}, {3, 1}}, {{1}, {1, 1}}};
  for (const auto& s : shapes) {
    ExpectGradient(
        s,
        [](const Inputs& in) {
          return Binary(in[0], in[1], [](double p, double q) { return p * q; });
        },
        [](const Inputs& in, const DoubleArray& dy) {
          return BinaryGradient(
              in[0], in[1], dy, [](double, double q) { return q; },
              [](double p, double) { return p; });
        });
    ExpectGradient(
        s,
        [](const Inputs& in) {
          return Binary(in[0], in[1], [](double p, double q) { return p / q; });
        },
        [](const Inputs& in, const DoubleArray& dy) {
          return BinaryGradient(
              in[0], in[1], dy, [](double, double q) { return 1 / q; },
              [](double p, double q) { return -p / (q * q); });
        });
  }
}

template <typename F>
void ExpectActivation() {
  ExpectGradient(
      {{3, 5}}, [](const Inputs& in) { return reference::Unary<F>(in[0]); },
      [](const Inputs& in, const DoubleArray& dy) {
        return reference::UnaryGradient<F>(in[0], dy);
      });
}

TEST(ReferenceTest, ActivationGradients) {
  ExpectActivation<reference::Relu>();
  ExpectActivation<reference::Sigmoid>();
  ExpectActivation<reference::Tanh>();
  ExpectActivation<reference::Gelu>();
  ExpectActivation<reference::GeluTanh>();
}

TEST(ReferenceTest, GemmGradients) {
  for (int flags = 0; flags < 4; ++flags) {
    const reference::GemmAttributes g = {.transpose_a = (flags & 1) != 0,
                                         .transpose_b = (flags & 2) != 0,
                                         .alpha = 0.7,
                                         .beta = -1.3};
    const Dims a = g.transpose_a ? Dims{4, 3} : Dims{3, 4};
    const Dims b = g.transpose_b ? Dims{2, 4} : Dims{4, 2};
    for (const Dims& c :
         {Dims{}, Dims{2}, Dims{1, 2}, Dims{3, 1}, Dims{3, 2}}) {
      ExpectGradient(
          {a, b, c},
          [&](const Inputs& in) {
            return reference::Gemm(g, in[0], in[1], &in[2]);
          },
          [&](const Inputs& in, const DoubleArray& dy) {
            return reference::GemmGradient(g, in[0], in[1], &in[2], dy);
          });
    }
  }
}

TEST(ReferenceTest, MatMulGradientsOfAllRanks) {
  const std::vector<std::vector<Dims>> shapes = {{{3, 4}, {4, 2}},
                                                 {{4}, {4}},
                                                 {{4}, {4, 2}},
                                                 {{3, 4}, {4}},
                                                 {{2, 3, 4}, {4, 2}},
                                                 {{2, 3, 4}, {2, 4, 5}},
                                                 {{3, 4}, {2, 4, 5}},
                                                 {{2, 1, 3, 4}, {3, 4, 2}},
                                                 {{2, 1, 2, 3}, {1, 2, 3, 2}}};
  for (const auto& s : shapes) {
    ExpectGradient(
        s, [](const Inputs& in) { return reference::MatMul(in[0], in[1]); },
        [](const Inputs& in, const DoubleArray& dy) {
          return reference::MatMulGradient(in[0], in[1], dy);
        });
  }
}

TEST(ReferenceTest, SoftmaxGradientsAlongAnyDimensions) {
  for (const auto& [begin, end] :
       {std::pair{0, 1}, {1, 2}, {2, 3}, {1, 3}, {0, 3}}) {
    const int64_t b = begin;
    const int64_t e = end;
    ExpectGradient(
        {{2, 3, 4}},
        [&](const Inputs& in) { return reference::Softmax(in[0], b, e); },
        [&](const Inputs& in, const DoubleArray& dy) {
          return reference::SoftmaxGradient(in[0], b, e, dy);
        });
    ExpectGradient(
        {{2, 3, 4}},
        [&](const Inputs& in) { return reference::LogSoftmax(in[0], b, e); },
        [&](const Inputs& in, const DoubleArray& dy) {
          return reference::LogSoftmaxGradient(in[0], b, e, dy);
        });
  }
}

TEST(ReferenceTest, LossGradients) {
  DoubleArray x = RandomArray({4, 3}, 1);
  const std::vector<double> classes = {2, 0, 1, 1};
  ExpectNear(
      reference::SoftmaxCrossEntropyGradient(x, classes).values,
      FiniteDifferences(
          x.values, [&] { return reference::SoftmaxCrossEntropy(x, classes); }),
      1e-8);
  const std::vector<double> targets = RandomArray({4, 3}, 2).values;
  ExpectNear(
      reference::MeanSquaredErrorGradient(x, targets).values,
      FiniteDifferences(
          x.values, [&] { return reference::MeanSquaredError(x, targets); }),
      1e-8);
  DoubleArray logits = RandomArray({4, 1}, 3);
  const std::vector<double> bits = {1, 0, 0, 1};
  ExpectNear(reference::SigmoidCrossEntropyGradient(logits, bits).values,
             FiniteDifferences(
                 logits.values,
                 [&] { return reference::SigmoidCrossEntropy(logits, bits); }),
             1e-8);
}

}  // namespace
}  // namespace syncline
