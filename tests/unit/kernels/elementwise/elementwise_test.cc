// Goal: float32 sums and their gradients under broadcasting. Method: against
// the reference in double over shapes that repeat either side, both overwriting
// and accumulating, and in place where the contract allows it.

#include "kernels/elementwise/elementwise.h"

#include "kernels/elementwise/broadcast.h"
#include "tests/testing/arrays.h"

namespace syncline {
namespace {

using reference::Dims;
using testing::DoubleArray;
using testing::ExpectNear;
using testing::RandomArray;
using testing::ToFloats;

constexpr double kTolerance = 1e-5;

class ElementwiseTest : public ::testing::TestWithParam<std::pair<Dims, Dims>> {
 protected:
  ElementwiseTest()
      : a_(RandomArray(GetParam().first, 1)),
        b_(RandomArray(GetParam().second, 2)),
        shape_(*MakeBroadcast(a_.dims, b_.dims)),
        dy_(RandomArray(reference::BroadcastTo(a_.dims, b_.dims), 3)),
        fa_(ToFloats(a_.values)),
        fb_(ToFloats(b_.values)),
        fdy_(ToFloats(dy_.values)) {}

  // run(accumulate, dx) against `want`.
  void ExpectGradient(
      const DoubleArray& want,
      const std::function<void(const float* dy, bool, float*)>& run) {
    std::vector<float> dx(want.values.size(), 99.0f);
    run(fdy_.data(), false, dx.data());
    ExpectNear(dx, want.values, kTolerance);
    run(fdy_.data(), true, dx.data());
    std::vector<double> twice = want.values;
    for (double& v : twice) v *= 2;
    ExpectNear(dx, twice, kTolerance);
    if (want.values.size() == fdy_.size()) {
      dx = fdy_;
      run(dx.data(), false, dx.data());
      ExpectNear(dx, want.values, kTolerance);
    }
  }

  const DoubleArray a_, b_;
  const Broadcast shape_;
  const DoubleArray dy_;
  const std::vector<float> fa_, fb_, fdy_;
};

TEST_P(ElementwiseTest, AddIsTheReference) {
  const DoubleArray want =
      Binary(a_, b_, [](double p, double q) { return p + q; });
  std::vector<float> y(shape_.count);
  Add(shape_, fa_.data(), fb_.data(), y.data());
  ExpectNear(y, want.values, kTolerance);
  if (shape_.a_count == shape_.count) {
    y = fa_;
    Add(shape_, y.data(), fb_.data(), y.data());
    ExpectNear(y, want.values, kTolerance);
  }
  if (shape_.b_count == shape_.count) {
    y = fb_;
    Add(shape_, fa_.data(), y.data(), y.data());
    ExpectNear(y, want.values, kTolerance);
  }
}

TEST_P(ElementwiseTest, SpreadRepeatsAndScales) {
  std::vector<float> y(shape_.count, 99.0f);
  Spread(shape_, -2, fb_.data(), y.data());
  ExpectNear(y, Binary(a_, b_, [](double, double q) { return -2 * q; }).values,
             kTolerance);
}

TEST_P(ElementwiseTest, AddGradientIsTheReference) {
  const auto want = BinaryGradient(
      a_, b_, dy_, [](double, double) { return 1.0; },
      [](double, double) { return -1.0; });
  ExpectGradient(want[0], [&](const float* dy, bool accumulate, float* dx) {
    AddGradient(shape_, Side::kA, 1, dy, accumulate, dx);
  });
  ExpectGradient(want[1], [&](const float* dy, bool accumulate, float* dx) {
    AddGradient(shape_, Side::kB, -1, dy, accumulate, dx);
  });
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, ElementwiseTest,
    ::testing::Values(std::pair<Dims, Dims>{{6, 7}, {6, 7}},
                      std::pair<Dims, Dims>{{9, 33}, {33}},
                      std::pair<Dims, Dims>{{33}, {9, 33}},
                      std::pair<Dims, Dims>{{5, 19}, {}},
                      std::pair<Dims, Dims>{{}, {5, 19}},
                      std::pair<Dims, Dims>{{7, 1}, {1, 18}},
                      std::pair<Dims, Dims>{{4, 17}, {4, 1}},
                      std::pair<Dims, Dims>{{2, 3, 4, 5}, {3, 1, 5}},
                      std::pair<Dims, Dims>{{2, 1, 4, 1}, {1, 3, 1, 5}},
                      std::pair<Dims, Dims>{{}, {}}));

// Sums of 70,000 numbers that a plain loop gets wrong in the fourth digit.
TEST(LongGradientTest, TheErrorDoesNotGrowWithTheRepetitions) {
  const std::vector<std::pair<Dims, Dims>> shapes = {
      {{70'000, 3}, {3}},          // a bias
      {{70'000, 3}, {70'000, 1}},  // a factor for each row: short sums
      {{70'000}, {}},
      {{3, 70'000}, {3, 1}},
      {{700, 3, 100}, {3, 1}},  // a channel's
      {{700, 3, 100}, {1, 1, 1}},
      {{100, 2, 700, 2}, {2, 1, 2}},
      {{70, 1100, 2}, {1, 1100, 1}},
      {{70, 1100, 3, 1030}, {1, 1, 1030}}};
  for (const auto& [a_dims, b_dims] : shapes) {
    const Broadcast shape = *MakeBroadcast(a_dims, b_dims);
    std::vector<float> dy(shape.count);
    for (size_t i = 0; i < dy.size(); ++i) {
      dy[i] = 0.1f + 1e-4f * static_cast<float>(i % 5);
    }
    std::vector<double> want(shape.b_count);
    ForEachRow(shape, [&](auto, auto sb, int64_t o, int64_t, int64_t b) {
      for (int64_t i = 0; i < shape.inner; ++i) want[b + i * sb] += dy[o + i];
    });
    for (const float start : {0.0f, 5.0f}) {
      std::vector<float> dx(shape.b_count, start);
      AddGradient(shape, Side::kB, 1, dy.data(), start != 0, dx.data());
      for (size_t i = 0; i < dx.size(); ++i) {
        // 72 roundings: kSumBlock / 8, or kRowBlock, and a few.
        ASSERT_NEAR(dx[i], want[i] + start, 72 * 6e-8 * (want[i] + start))
            << ::testing::PrintToString(a_dims) << " element " << i;
      }
    }
    // The other way round it is the other operand's.
    const Broadcast swapped = *MakeBroadcast(b_dims, a_dims);
    std::vector<float> da(swapped.a_count);
    AddGradient(swapped, Side::kA, 1, dy.data(), false, da.data());
    for (size_t i = 0; i < da.size(); ++i) {
      ASSERT_NEAR(da[i], want[i], 72 * 6e-8 * want[i]);
    }
  }
}

}  // namespace
}  // namespace syncline
