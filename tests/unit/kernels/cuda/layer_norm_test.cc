// Goal: a sum that is normalised in one pass has the bits of the sum and of the
// normalisation after it, and so have its gradients. Method: both, on an
// emulated device, for rows of all forms, types and what is wanted of them.
// (worker_op_cuda_test holds what comes one after the other against this
// machine.)

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/element_type.h"
#include "gtest/gtest.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/device/binary_kernels.h"
#include "kernels/device/kernel_table.h"
#include "kernels/device/layer_norm_kernels.h"
#include "kernels/elementwise/broadcast.h"
#include "tests/testing/arrays.h"
#include "tests/testing/cuda_emulator/emulated_device.h"
#include "tests/testing/cuda_emulator/same_kernels.h"

namespace syncline {
namespace {

using testing::EmulatedDevice;
using testing::KernelRun;
using testing::RandomArray;

constexpr DType kWideSum = DType::kFloat32;
constexpr DType kNarrowSum = DType::kBfloat16;

struct SumCase {
  RowNorm s;
  DType a = kWideSum, b = kWideSum, sum = kWideSum, y = kWideSum;
  bool has_bias = true;
  // Backward; what is added to is there before.
  bool has_dsum = true, wants_a = true, wants_b = true;
  bool add_a = false, add_b = false;

  int64_t count() const { return s.rows * s.n; }
  Broadcast broadcast() const {
    const std::vector<int64_t> dims = {s.rows, s.n};
    return *MakeBroadcast(dims, dims);
  }
};

// One run's arrays of the types that a case has.
class SumArrays {
 public:
  explicit SumArrays(Device* device) : run(device) {}

  Floats Draw(DType type, int64_t count, uint64_t seed) {
    std::vector<float> values =
        testing::ToFloats(RandomArray({count}, seed).values);
    if (type == kWideSum) return run.Put(values);
    std::vector<uint16_t> bits(values.size());
    Narrow(ElementType::kBfloat16, values.data(), bits.data(), bits.size());
    return {run.Put(bits), type};
  }
  Floats Result(DType type, int64_t count) {
    return {run.Result(count * DTypeBytes(type)), type};
  }
  float* Statistic(int64_t rows) {
    return static_cast<float*>(run.Result(rows * sizeof(float)));
  }

  KernelRun run;
};

std::string SumForward(const SumCase& c, bool is_fused) {
  EmulatedDevice device;
  SumArrays arrays(&device);
  const ConstFloats a = arrays.Draw(c.a, c.count(), 1);
  const ConstFloats b = arrays.Draw(c.b, c.count(), 2);
  const ConstFloats scale = arrays.Draw(kWideSum, c.s.n, 3);
  const ConstFloats bias =
      c.has_bias ? ConstFloats(arrays.Draw(kWideSum, c.s.n, 4)) : nullptr;
  const Floats sum = arrays.Result(c.sum, c.count());
  const Floats y = arrays.Result(c.y, c.count());
  float* const mean = c.s.centred ? arrays.Statistic(c.s.rows) : nullptr;
  float* const inverse = arrays.Statistic(c.s.rows);
  Stream& stream = arrays.run.stream();
  const LayerNormKernels& kernels = *device.kernels().layer_norm;
  if (is_fused) {
    kernels.add_forward(stream, c.s, a, b, scale, bias, sum, y, mean, inverse);
  } else {
    (*device.kernels().binary)[BinaryFunction::kAdd].forward(
        stream, c.broadcast(), a, b, sum);
    kernels.forward(stream, c.s, sum, scale, bias, y, mean, inverse);
  }
  return arrays.run.Read();
}

std::string SumBackward(const SumCase& c, bool is_fused) {
  EmulatedDevice device;
  SumArrays arrays(&device);
  const ConstFloats sum = arrays.Draw(c.sum, c.count(), 1);
  const ConstFloats scale = arrays.Draw(kWideSum, c.s.n, 2);
  const float* const mean = arrays.Draw(kWideSum, c.s.rows, 3);
  const float* const inverse = arrays.Draw(kWideSum, c.s.rows, 4);
  const ConstFloats dy = arrays.Draw(c.y, c.count(), 5);
  const Floats dsum = arrays.Draw(c.sum, c.count(), 6);
  // Results that are not wanted stay as they are, but are compared, too.
  const Floats da = arrays.Result(c.a, c.count());
  const Floats db = arrays.Result(c.b, c.count());
  Stream& stream = arrays.run.stream();
  const LayerNormKernels& kernels = *device.kernels().layer_norm;
  if (is_fused) {
    kernels.add_backward(stream, c.s, sum, scale, mean, inverse, dy,
                         c.has_dsum ? ConstFloats(dsum) : nullptr,
                         {.da = c.wants_a ? da : nullptr,
                          .db = c.wants_b ? db : nullptr,
                          .add_da = c.add_a,
                          .add_db = c.add_b,
                          .sum_type = c.sum});
    return arrays.run.Read();
  }
  kernels.backward(stream, c.s, sum, scale, mean, inverse, dy,
                   {.dx = dsum, .add_dx = c.has_dsum});
  const auto& add = (*device.kernels().binary)[BinaryFunction::kAdd];
  const Broadcast s = c.broadcast();
  if (c.wants_b) {
    add.backward_b(stream, s, nullptr, nullptr, nullptr, dsum, c.add_b, db);
  }
  if (c.wants_a) {
    add.backward_a(stream, s, nullptr, nullptr, nullptr, dsum, c.add_a, da);
  }
  return arrays.run.Read();
}

// A warp's rows, odd ones, a block's, none; and one element.
std::vector<RowNorm> SumShapes() {
  std::vector<RowNorm> shapes;
  for (const bool centred : {true, false}) {
    for (const auto& [rows, n] : {std::pair<int64_t, int64_t>{5, 37},
                                  {3, 64},
                                  {2, 1100},
                                  {0, 7},
                                  {4, 1}}) {
      shapes.push_back({.rows = rows, .n = n, .centred = centred});
    }
  }
  return shapes;
}

void ExpectBitsOfTwo(const SumCase& c) {
  SCOPED_TRACE(absl::StrCat(c.s.rows, " x ", c.s.n, c.s.centred ? "" : " RMS",
                            " ", DTypeName(c.a), " + ", DTypeName(c.b), " = ",
                            DTypeName(c.sum)));
  EXPECT_EQ(SumForward(c, true), SumForward(c, false));
  EXPECT_EQ(SumBackward(c, true), SumBackward(c, false));
}

TEST(CudaLayerNormTest, ASumAndItsNormalisationInOnePassHaveTheBitsOfTwo) {
  for (const RowNorm& s : SumShapes()) {
    ExpectBitsOfTwo({.s = s});
    ExpectBitsOfTwo({.s = s, .has_bias = false, .has_dsum = false});
  }
}

TEST(CudaLayerNormTest, ASumIn16BitsIsRoundedBeforeItIsNormalised) {
  for (const RowNorm& s : SumShapes()) {
    ExpectBitsOfTwo({.s = s,
                     .a = kNarrowSum,
                     .b = kNarrowSum,
                     .sum = kNarrowSum,
                     .y = kNarrowSum});
    ExpectBitsOfTwo({.s = s, .b = kNarrowSum});
    ExpectBitsOfTwo(
        {.s = s, .b = kNarrowSum, .sum = kNarrowSum, .add_a = true});
  }
}

TEST(CudaLayerNormTest, GradientsThatAreWantedAreWrittenOrAddedTo) {
  const RowNorm s = {.rows = 3, .n = 11};
  for (const DType type : {kWideSum, kNarrowSum}) {
    for (int bits = 0; bits < 32; ++bits) {
      SCOPED_TRACE(bits);
      ExpectBitsOfTwo({.s = s,
                       .a = type,
                       .b = type,
                       .sum = type,
                       .y = type,
                       .has_dsum = (bits & 1) != 0,
                       .wants_a = (bits & 2) != 0,
                       .wants_b = (bits & 4) != 0,
                       .add_a = (bits & 8) != 0,
                       .add_b = (bits & 16) != 0});
    }
  }
}

// The sum over a summand; a summand's gradient over the sum's.
TEST(CudaLayerNormTest, ASumMayLieOverItsSummand) {
  const RowNorm s = {.rows = 2, .n = 5};
  const auto run = [&](bool in_place) {
    EmulatedDevice device;
    SumArrays arrays(&device);
    const Floats a = arrays.Draw(kWideSum, 10, 1),
                 b = arrays.Draw(kWideSum, 10, 2);
    const Floats scale = arrays.Draw(kWideSum, 5, 3);
    const Floats dsum = arrays.Draw(kWideSum, 10, 4);
    const Floats sum = in_place ? a : arrays.Draw(kWideSum, 10, 5);
    const Floats da = in_place ? dsum : arrays.Draw(kWideSum, 10, 6);
    const Floats y = arrays.Result(kWideSum, 10),
                 copy = arrays.Result(kWideSum, 20);
    float* const mean = arrays.Statistic(2);
    float* const inverse = arrays.Statistic(2);
    Stream& stream = arrays.run.stream();
    const LayerNormKernels& kernels = *device.kernels().layer_norm;
    kernels.add_forward(stream, s, a, b, scale, nullptr, sum, y, mean, inverse);
    kernels.add_backward(stream, s, sum, scale, mean, inverse, y, dsum,
                         {.da = da});
    stream.Copy(copy, sum, 10 * sizeof(float));
    stream.Copy(copy + 10, da, 10 * sizeof(float));
    return arrays.run.Read();
  };
  EXPECT_EQ(run(true), run(false));
}

// As where a sum is computed again for the gradients.
TEST(CudaLayerNormTest, WithoutAResultTheSumAndItsStatisticsAreTheSame) {
  const RowNorm s = {.rows = 2, .n = 5};
  const auto run = [&](bool wants_y) {
    EmulatedDevice device;
    SumArrays arrays(&device);
    const Floats a = arrays.Draw(kWideSum, 10, 1);
    const Floats b = arrays.Draw(kWideSum, 10, 2);
    const Floats scale = arrays.Draw(kWideSum, 5, 3);
    const Floats sum = arrays.Result(kWideSum, 10);
    const Floats y = arrays.Draw(kWideSum, 10, 4);
    float* const mean = arrays.Statistic(2);
    float* const inverse = arrays.Statistic(2);
    device.kernels().layer_norm->add_forward(
        arrays.run.stream(), s, a, b, scale, nullptr, sum,
        wants_y ? y : nullptr, mean, inverse);
    return arrays.run.Read();
  };
  EXPECT_EQ(run(false), run(true));
}

TEST(CudaLayerNormTest, AProcessorHasNoneOfThese) {
  EXPECT_EQ(ThisMachine().kernels().layer_norm->add_forward, nullptr);
  EXPECT_EQ(ThisMachine().kernels().layer_norm->add_backward, nullptr);
}

}  // namespace
}  // namespace syncline
