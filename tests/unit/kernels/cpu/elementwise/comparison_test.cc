// Goal: comparisons and logic of every type on this machine's processors, NaN
// included. Method: numbers by hand, with either operand repeated.

#include <cmath>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/device/comparison_kernels.h"
#include "kernels/device/kernel_table.h"

namespace syncline {
namespace {

using F = ComparisonFunction;
using Flags = std::vector<uint8_t>;

const ComparisonKernels& Kernels() {
  return *ThisMachine().kernels().comparison;
}

// Of three elements each.
template <typename T>
Flags Compare(F function, DType dtype, const std::vector<T>& a,
              const std::vector<T>& b) {
  CpuStream stream(&ThisMachine());
  const Strided<2> walk({3}, {std::vector<int64_t>{1}, {1}});
  Flags y(3, 7);
  Kernels()[function][dtype](stream, walk, a.data(), b.data(), y.data());
  return y;
}

template <typename T>
void ExpectOrder(DType dtype) {
  const std::vector<T> a = {0, 2, 2};
  const std::vector<T> b = {1, 2, 0};
  EXPECT_EQ(Compare(F::kEqual, dtype, a, b), (Flags{0, 1, 0}));
  EXPECT_EQ(Compare(F::kLess, dtype, a, b), (Flags{1, 0, 0}));
  EXPECT_EQ(Compare(F::kLessOrEqual, dtype, a, b), (Flags{1, 1, 0}));
}

TEST(ComparisonTest, AllTypesAreOrdered) {
  ExpectOrder<float>(DType::kFloat32);
  ExpectOrder<double>(DType::kFloat64);
  ExpectOrder<int32_t>(DType::kInt32);
  ExpectOrder<int64_t>(DType::kInt64);
  ExpectOrder<uint8_t>(DType::kUint8);
}

TEST(ComparisonTest, NumbersAreComparedAsTheirType) {
  const std::vector<int64_t> a = {-1, int64_t{1} << 40, 0};
  const std::vector<int64_t> b = {1, 0, int64_t{1} << 32};
  EXPECT_EQ(Compare(F::kLess, DType::kInt64, a, b), (Flags{1, 0, 1}));
}

TEST(ComparisonTest, NanEqualsAndOrdersNothing) {
  const std::vector<float> a = {NAN, 1, NAN};
  const std::vector<float> b = {1, NAN, NAN};
  for (const F function : {F::kEqual, F::kLess, F::kLessOrEqual}) {
    EXPECT_EQ(Compare(function, DType::kFloat32, a, b), (Flags{0, 0, 0}));
  }
}

TEST(ComparisonTest, Logic) {
  const Flags a = {0, 1, 1};
  const Flags b = {0, 0, 1};
  EXPECT_EQ(Compare(F::kAnd, DType::kBool, a, b), (Flags{0, 0, 1}));
  EXPECT_EQ(Compare(F::kOr, DType::kBool, a, b), (Flags{0, 1, 1}));
  EXPECT_EQ(Compare(F::kXor, DType::kBool, a, b), (Flags{0, 1, 0}));
  EXPECT_EQ(Compare(F::kEqual, DType::kBool, a, b), (Flags{1, 0, 1}));
  CpuStream stream(&ThisMachine());
  Flags y = b;
  Kernels().logical_not(stream, 3, y.data(), y.data());
  EXPECT_EQ(y, (Flags{1, 1, 0}));
}

TEST(ComparisonTest, OperandsAreRepeated) {
  CpuStream stream(&ThisMachine());
  // [2, 1] under [2, 3], and [3].
  const Strided<2> walk({2, 3}, {std::vector<int64_t>{1, 0}, {0, 1}});
  const std::vector<float> a = {1, 2};
  const std::vector<float> b = {0, 1.5f, 3};
  Flags y(6, 7);
  Kernels()[F::kLess][DType::kFloat32](stream, walk, a.data(), b.data(),
                                       y.data());
  EXPECT_EQ(y, (Flags{0, 1, 1, 0, 0, 1}));
}

}  // namespace
}  // namespace syncline
