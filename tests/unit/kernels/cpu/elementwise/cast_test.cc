// Goal: every type is converted to every other one on this machine's
// processors. Method: numbers by hand, at the ends of the types and beyond; the
// gradient overwriting, accumulating and in place.

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/device/cast_kernels.h"
#include "kernels/device/kernel_table.h"

namespace syncline {
namespace {

constexpr DType kTypes[] = {DType::kFloat32, DType::kFloat64, DType::kInt32,
                            DType::kInt64,   DType::kBool,    DType::kUint8};

const CastKernels& Kernels() { return *ThisMachine().kernels().cast; }

template <typename To, typename From>
std::vector<To> Cast(DType from, DType to, const std::vector<From>& x) {
  CpuStream stream(&ThisMachine());
  std::vector<To> y(x.size());
  Kernels().casts[from][to](stream, static_cast<int64_t>(x.size()), x.data(),
                            y.data());
  return y;
}

// The bytes of a number of a type, from a byte.
std::vector<uint8_t> BytesOf(DType type, uint8_t value) {
  CpuStream stream(&ThisMachine());
  std::vector<uint8_t> bytes(8);
  Kernels().casts[DType::kUint8][type](stream, 1, &value, bytes.data());
  return bytes;
}

TEST(CastTest, ZeroAndOneStayInEveryType) {
  CpuStream stream(&ThisMachine());
  for (const DType from : kTypes) {
    for (const DType to : kTypes) {
      for (const uint8_t value : {0, 1}) {
        std::vector<uint8_t> y(8);
        Kernels().casts[from][to](stream, 1, BytesOf(from, value).data(),
                                  y.data());
        EXPECT_EQ(y, BytesOf(to, value))
            << DTypeName(from) << " to " << DTypeName(to);
      }
    }
  }
}

TEST(CastTest, WhatATypeDoesNotHaveIsItsNearestNumber) {
  using Limits32 = std::numeric_limits<int32_t>;
  using Limits64 = std::numeric_limits<int64_t>;
  const std::vector<float> x = {1e20f, -1e20f, NAN, -2.75f, 2.75f};
  EXPECT_EQ((Cast<int32_t>(DType::kFloat32, DType::kInt32, x)),
            (std::vector<int32_t>{Limits32::max(), Limits32::min(), 0, -2, 2}));
  EXPECT_EQ((Cast<int64_t>(DType::kFloat32, DType::kInt64, x)),
            (std::vector<int64_t>{Limits64::max(), Limits64::min(), 0, -2, 2}));
  EXPECT_EQ((Cast<uint8_t>(DType::kFloat32, DType::kUint8, x)),
            (std::vector<uint8_t>{255, 0, 0, 0, 2}));
  EXPECT_EQ((Cast<int32_t>(DType::kFloat64, DType::kInt32,
                           std::vector<double>{2147483646.9, 2147483647.0})),
            (std::vector<int32_t>{Limits32::max() - 1, Limits32::max()}));
}

TEST(CastTest, BoolIsWhetherItIsNotZero) {
  EXPECT_EQ((Cast<uint8_t>(DType::kFloat32, DType::kBool,
                           std::vector<float>{0, -0.0f, 0.25f, NAN})),
            (std::vector<uint8_t>{0, 0, 1, 1}));
  EXPECT_EQ((Cast<uint8_t>(DType::kInt64, DType::kBool,
                           std::vector<int64_t>{0, 256, -1})),
            (std::vector<uint8_t>{0, 1, 1}));
}

TEST(CastTest, IntegersLoseTheirHighBits) {
  EXPECT_EQ((Cast<int32_t>(DType::kInt64, DType::kInt32,
                           std::vector<int64_t>{(int64_t{1} << 32) + 5, -1})),
            (std::vector<int32_t>{5, -1}));
}

TEST(CastTest, TheGradientPasses) {
  CpuStream stream(&ThisMachine());
  const std::vector<float> dy = {1, -2, 3};
  std::vector<float> dx(3, 99.0f);
  Kernels().backward(stream, 3, dy.data(), /*accumulate=*/false, dx.data());
  EXPECT_EQ(dx, dy);
  Kernels().backward(stream, 3, dy.data(), /*accumulate=*/true, dx.data());
  EXPECT_EQ(dx, (std::vector<float>{2, -4, 6}));
  Kernels().backward(stream, 3, dx.data(), /*accumulate=*/false, dx.data());
  EXPECT_EQ(dx, (std::vector<float>{2, -4, 6}));
}

}  // namespace
}  // namespace syncline
