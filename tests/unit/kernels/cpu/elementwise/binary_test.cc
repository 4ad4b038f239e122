// Goal: functions of two float32 numbers under broadcasting, and their
// gradients, on this machine's processors. Method: against the reference in
// double over shapes that repeat either side, overwriting, accumulating and in
// place where the contract allows it, without what a gradient does not read;
// the bits of one thread on several. (worker_op_table_test has more of them.)

#include <cmath>
#include <functional>
#include <utility>
#include <vector>

#include "kernels/cpu/cpu_device.h"
#include "kernels/device/binary_kernels.h"
#include "kernels/device/kernel_table.h"
#include "kernels/elementwise/broadcast.h"
#include "kernels/threads.h"
#include "tests/testing/arrays.h"

namespace syncline {
namespace {

using reference::Dims;
using testing::DoubleArray;
using testing::ExpectNear;
using testing::RandomArray;
using testing::ToFloats;
using Scalar = std::function<double(double a, double b)>;

constexpr double kTolerance = 1e-5;

// A function, and its derivatives by a and by b.
struct Definition {
  BinaryFunction function;
  Scalar value, by_a, by_b;
};

std::vector<Definition> Definitions() {
  using F = BinaryFunction;
  return {
      {F::kAdd, [](double a, double b) { return a + b; },
       [](double, double) { return 1.0; }, [](double, double) { return 1.0; }},
      {F::kSubtract, [](double a, double b) { return a - b; },
       [](double, double) { return 1.0; }, [](double, double) { return -1.0; }},
      {F::kMultiply, [](double a, double b) { return a * b; },
       [](double, double b) { return b; }, [](double a, double) { return a; }},
      {F::kDivide, [](double a, double b) { return a / b; },
       [](double, double b) { return 1 / b; },
       [](double a, double b) { return -a / (b * b); }},
      {F::kPRelu, [](double a, double b) { return a < 0 ? a * b : a; },
       [](double a, double b) { return a < 0 ? b : 1.0; },
       [](double a, double) { return a < 0 ? a : 0.0; }},
  };
}

class BinaryTest : public ::testing::TestWithParam<std::pair<Dims, Dims>> {
 protected:
  BinaryTest()
      : a_(RandomArray(GetParam().first, 1)),
        b_(RandomArray(GetParam().second, 2)),
        shape_(*MakeBroadcast(a_.dims, b_.dims)),
        dy_(RandomArray(reference::BroadcastTo(a_.dims, b_.dims), 3)),
        fa_(ToFloats(a_.values)),
        fb_(ToFloats(b_.values)),
        fdy_(ToFloats(dy_.values)) {}

  void ExpectForward(const Definition& d) {
    const std::vector<double> want = Binary(a_, b_, d.value).values;
    const auto forward = (*ThisMachine().kernels().binary)[d.function].forward;
    std::vector<float> y(shape_.count);
    forward(stream_, shape_, fa_.data(), fb_.data(), y.data());
    ExpectNear(y, want, kTolerance);
    if (shape_.a_count == shape_.count) {
      y = fa_;
      forward(stream_, shape_, y.data(), fb_.data(), y.data());
      ExpectNear(y, want, kTolerance);
    }
    if (shape_.b_count == shape_.count) {
      y = fb_;
      forward(stream_, shape_, fa_.data(), y.data(), y.data());
      ExpectNear(y, want, kTolerance);
    }
  }

  void ExpectGradient(const Definition& d, Side side) {
    const auto& kernels = (*ThisMachine().kernels().binary)[d.function];
    const auto backward =
        side == Side::kA ? kernels.backward_a : kernels.backward_b;
    std::vector<double> want =
        BinaryGradient(a_, b_, dy_, d.by_a, d.by_b)[side == Side::kA ? 0 : 1]
            .values;
    const std::vector<float> fy = ToFloats(Binary(a_, b_, d.value).values);
    const BinaryReads reads = BinaryReadsOf(d.function, side);
    const auto run = [&](const float* dy, bool accumulate, float* dx) {
      backward(stream_, shape_, reads.a ? fa_.data() : nullptr,
               reads.b ? fb_.data() : nullptr, reads.y ? fy.data() : nullptr,
               dy, accumulate, dx);
    };
    std::vector<float> dx(want.size(), 99.0f);
    run(fdy_.data(), /*accumulate=*/false, dx.data());
    ExpectNear(dx, want, kTolerance);
    if (dx.size() == fdy_.size()) {
      std::vector<float> in_place = fdy_;
      run(in_place.data(), /*accumulate=*/false, in_place.data());
      EXPECT_EQ(in_place, dx);
    }
    run(fdy_.data(), /*accumulate=*/true, dx.data());
    for (double& v : want) v *= 2;
    ExpectNear(dx, want, kTolerance);
  }

  CpuStream stream_{&ThisMachine()};
  const DoubleArray a_, b_;
  const Broadcast shape_;
  const DoubleArray dy_;
  const std::vector<float> fa_, fb_, fdy_;
};

TEST_P(BinaryTest, FunctionsAreTheReference) {
  for (const Definition& d : Definitions()) {
    SCOPED_TRACE(static_cast<int>(d.function));
    ExpectForward(d);
    ExpectGradient(d, Side::kA);
    ExpectGradient(d, Side::kB);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, BinaryTest,
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

TEST(BinaryThreadsTest, TheBitsDoNotDependOnTheNumberOfThreads) {
  CpuStream stream(&ThisMachine());
  const Dims dims = {70, 2000};
  const std::vector<float> a = ToFloats(RandomArray(dims, 1).values);
  const std::vector<float> b = ToFloats(RandomArray({2000}, 2).values);
  const std::vector<float> dy = ToFloats(RandomArray(dims, 3).values);
  const Broadcast s = *MakeBroadcast(dims, {2000});
  const auto& kernels =
      (*ThisMachine().kernels().binary)[BinaryFunction::kDivide];
  const auto run = [&](int threads) {
    SetComputeThreads(threads);
    std::vector<float> y(a.size()), da(a.size()), db(b.size());
    kernels.forward(stream, s, a.data(), b.data(), y.data());
    kernels.backward_a(stream, s, nullptr, b.data(), nullptr, dy.data(),
                       /*accumulate=*/false, da.data());
    kernels.backward_b(stream, s, nullptr, b.data(), y.data(), dy.data(),
                       /*accumulate=*/false, db.data());
    SetComputeThreads(1);
    return std::vector<std::vector<float>>{y, da, db};
  };
  EXPECT_EQ(run(3), run(1));
}

TEST(BinaryFunctionTest, TheDeviceHasAllOfThem) {
  for (const auto& kernels : ThisMachine().kernels().binary->functions) {
    EXPECT_NE(kernels.forward, nullptr);
    EXPECT_NE(kernels.backward_a, nullptr);
    EXPECT_NE(kernels.backward_b, nullptr);
  }
}

TEST(BinaryFunctionTest, ARemainderHasTheDividendsSign) {
  CpuStream stream(&ThisMachine());
  const std::vector<float> a = {7.5f, -7.5f, 7.5f};
  const std::vector<float> b = {2, 2, -2};
  const std::vector<float> dy = {1, 2, 3};
  const Broadcast s = *MakeBroadcast({3}, {3});
  const auto& kernels =
      (*ThisMachine().kernels().binary)[BinaryFunction::kRemainder];
  std::vector<float> y(3), db(3);
  kernels.forward(stream, s, a.data(), b.data(), y.data());
  EXPECT_EQ(y, (std::vector<float>{1.5f, -1.5f, 1.5f}));
  // a - trunc(a / b) b
  kernels.backward_b(stream, s, a.data(), b.data(), nullptr, dy.data(),
                     /*accumulate=*/false, db.data());
  EXPECT_EQ(db, (std::vector<float>{-3, 6, 9}));
}

}  // namespace
}  // namespace syncline
