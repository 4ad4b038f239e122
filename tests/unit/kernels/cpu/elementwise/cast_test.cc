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

// The bits of floats in a 16-bit type, and back.
void ExpectBits(DType type, const std::vector<float>& x,
                const std::vector<uint16_t>& bits,
                const std::vector<float>& back) {
  EXPECT_EQ((Cast<uint16_t>(DType::kFloat32, type, x)), bits);
  const auto wide = Cast<float>(type, DType::kFloat32, bits);
  for (size_t i = 0; i < back.size(); ++i) {
    EXPECT_EQ(std::signbit(wide[i]), std::signbit(back[i])) << i;
    if (std::isnan(back[i])) {
      EXPECT_TRUE(std::isnan(wide[i])) << i;
    } else {
      EXPECT_EQ(wide[i], back[i]) << i;
    }
  }
}

TEST(CastTest, Bfloat16IsRoundedToTheNearestAndTiesToEven) {
  const float inf = std::numeric_limits<float>::infinity();
  const float step = std::ldexp(1.0f, -7);
  ExpectBits(DType::kBfloat16,
             {1 + step / 2, 1 + step * 3 / 2, 1 + step * 0.75f, -0.0f, inf,
              -inf, NAN, std::numeric_limits<float>::max(),
              std::ldexp(1.0f, -133), std::ldexp(1.0f, -134)},
             {0x3f80, 0x3f82, 0x3f81, 0x8000, 0x7f80, 0xff80, 0x7fc0, 0x7f80,
              0x0001, 0x0000},
             {1, 1 + 2 * step, 1 + step, -0.0f, inf, -inf, NAN, inf,
              std::ldexp(1.0f, -133), 0});
}

TEST(CastTest, Float16KeepsSubnormalsAndOverflowsToInfinity) {
  const float inf = std::numeric_limits<float>::infinity();
  const float step = std::ldexp(1.0f, -10);
  const float least = std::ldexp(1.0f, -24);
  ExpectBits(DType::kFloat16,
             {1 + step / 2, 1 + step * 3 / 2, -0.0f, inf, -inf, NAN, 65519,
              65520, least, least / 2, least * 1.5f},
             {0x3c00, 0x3c02, 0x8000, 0x7c00, 0xfc00, 0x7e00, 0x7bff, 0x7c00,
              0x0001, 0x0000, 0x0002},
             {1, 1 + 2 * step, -0.0f, inf, -inf, NAN, 65504, inf, least, 0,
              2 * least});
}

TEST(CastTest, SixteenBitsAreCastFromAndToFloat32Alone) {
  for (const DType narrow : {DType::kBfloat16, DType::kFloat16}) {
    for (const DType other : kTypes) {
      EXPECT_EQ(Kernels().casts[narrow][other] != nullptr,
                other == DType::kFloat32);
      EXPECT_EQ(Kernels().casts[other][narrow] != nullptr,
                other == DType::kFloat32);
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
