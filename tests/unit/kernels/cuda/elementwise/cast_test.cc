// Goal: conversions have the bits of this machine's, 16-bit types included.
// Method: all 16-bit patterns, floats around every limit, on an emulated
// device.

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/device/cast_kernels.h"
#include "tests/testing/cuda_emulator/same_kernels.h"

namespace syncline {
namespace {

using testing::ExpectSameKernels;
using testing::KernelRun;

// Powers of two of every size with neighbours, half steps, and what is no
// number.
std::vector<float> HardFloats() {
  std::vector<float> values = {0.0f,  -0.0f, INFINITY, -INFINITY, 65504,
                               65519, 65520, 65536,    3.4e38f};
  for (int exponent = -149; exponent <= 127; ++exponent) {
    for (const float size : {1.0f, 1.0009765625f, 1.00048828125f, 1.99951f,
                             1.0000001f, 1.00390625f, 1.5f, 1.001f}) {
      values.push_back(std::ldexp(size, exponent));
      values.push_back(-std::ldexp(size, exponent));
    }
  }
  return values;
}

TEST(CudaCastTest, FloatsAreNarrowedAsOnThisMachine) {
  const std::vector<float> x = HardFloats();
  const int64_t n = static_cast<int64_t>(x.size());
  for (const DType type : {DType::kBfloat16, DType::kFloat16}) {
    ExpectSameKernels([&](KernelRun& run) {
      run.kernels().cast->casts[DType::kFloat32][type](
          run.stream(), n, run.Put(x), run.Result(2 * n));
    });
  }
}

TEST(CudaCastTest, NanStaysNanWithItsSign) {
  const std::vector<float> x = {std::nanf(""), -std::nanf("")};
  for (const DType type : {DType::kBfloat16, DType::kFloat16}) {
    testing::EmulatedDevice device;
    KernelRun run(&device);
    auto* const narrow = static_cast<uint16_t*>(run.Result(4));
    void* const wide = run.Result(8);
    run.kernels().cast->casts[DType::kFloat32][type](run.stream(), 2,
                                                     run.Put(x), narrow);
    run.kernels().cast->casts[type][DType::kFloat32](run.stream(), 2, narrow,
                                                     wide);
    float back[2];
    std::memcpy(back, run.Read().data() + 4, sizeof(back));
    for (const int i : {0, 1}) {
      EXPECT_TRUE(std::isnan(back[i]));
      EXPECT_EQ(std::signbit(back[i]), std::signbit(x[i]));
    }
  }
}

TEST(CudaCastTest, All16BitNumbersAreWidenedAsOnThisMachine) {
  for (const DType type : {DType::kBfloat16, DType::kFloat16}) {
    const int exponent_bits = type == DType::kBfloat16 ? 0x7f80 : 0x7c00;
    std::vector<uint16_t> x;
    for (int bits = 0; bits < 1 << 16; ++bits) {
      const bool is_nan = (bits & exponent_bits) == exponent_bits &&
                          (bits & ~(exponent_bits | 0x8000)) != 0;
      if (!is_nan) x.push_back(static_cast<uint16_t>(bits));
    }
    const int64_t n = static_cast<int64_t>(x.size());
    ExpectSameKernels([&](KernelRun& run) {
      run.kernels().cast->casts[type][DType::kFloat32](
          run.stream(), n, run.Put(x), run.Result(4 * n));
    });
  }
}

template <typename T>
void ExpectAllFrom(DType from, const std::vector<T>& x) {
  const int64_t n = static_cast<int64_t>(x.size());
  for (const DType to : {DType::kFloat32, DType::kFloat64, DType::kInt32,
                         DType::kInt64, DType::kBool, DType::kUint8}) {
    ExpectSameKernels([&](KernelRun& run) {
      run.kernels().cast->casts[from][to](run.stream(), n, run.Put(x),
                                          run.Result(n * DTypeBytes(to)));
    });
  }
}

TEST(CudaCastTest, TypesOfModels) {
  ExpectAllFrom<float>(DType::kFloat32,
                       {0, 0.9f, -0.9f, 255.5f, 3e9f, -3e9f, 1e30f, INFINITY});
  ExpectAllFrom<double>(DType::kFloat64, {0, 1e-300, -2.5, 1e300, -1e300});
  ExpectAllFrom<int32_t>(DType::kInt32, {0, -1, 300, INT32_MAX, INT32_MIN});
  ExpectAllFrom<int64_t>(DType::kInt64, {0, -1, 300, INT64_MAX, INT64_MIN});
  ExpectAllFrom<uint8_t>(DType::kBool, {0, 1});
  ExpectAllFrom<uint8_t>(DType::kUint8, {0, 1, 255});
}

}  // namespace
}  // namespace syncline
