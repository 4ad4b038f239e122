// Goal: on a GPU every operator computes what it computes on this machine's
// processors. Method: every row of op_table_test, forward and backward, on
// both; and twice on the GPU, which must give the same bits. Operators that a
// GPU computes in 16 bits, in both types too; convolutions by cuDNN and by our
// own kernels.

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/cpu/cpu_device.h"
#include "tests/gpu/gpu.h"
#include "tests/testing/arrays.h"
#include "tests/testing/op_case.h"
#include "tests/unit/worker/ops/device_run.h"
#include "worker/compute/type_rules.h"

namespace syncline::worker {
namespace {

using testing::DoubleArray;
using testing::OpCase;
using testing::RandomArray;
using testing::ToFloats;

// The emulated device, which has this machine's exp and tanh, stays within
// 1e-5. A GPU's are off by a few units in the last place.
constexpr double kTolerance = 3e-5;

// Those without channels in blocks, which are this machine's.
std::vector<OpCase> Cases() {
  std::vector<OpCase> cases = testing::AllOpCases();
  std::erase_if(cases, [](const OpCase& c) {
    return c.input_block > 1 || c.output_block > 1;
  });
  return cases;
}

class OpGpuTest : public ::testing::TestWithParam<OpCase> {
 protected:
  void SetUp() override { ASSERT_NE(gpu_.device(), nullptr); }

  OnGpu gpu_;
};

TEST_P(OpGpuTest, ComputesAsThisMachineDoes) {
  const OpCase& c = GetParam();
  const DoubleArray y = c.forward(c.DrawInputs());
  const std::vector<float> dy = ToFloats(RandomArray(y.dims, 3).values);
  const auto got = DeviceRun(c, y, gpu_.device()).Run(dy);
  const auto want = DeviceRun(c, y, &ThisMachine()).Run(dy);
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    SCOPED_TRACE(i == 0 ? "result" : absl::StrCat("gradient ", i - 1));
    testing::ExpectNear(got[i], {want[i].begin(), want[i].end()}, kTolerance);
  }
  EXPECT_EQ(DeviceRun(c, y, gpu_.device()).Run(dy), got) << "not the same bits";
}

TEST_P(OpGpuTest, AddsToGradients) {
  const OpCase& c = GetParam();
  const DoubleArray y = c.forward(c.DrawInputs());
  const std::vector<float> dy = ToFloats(RandomArray(y.dims, 3).values);
  const auto got = DeviceRun(c, y, gpu_.device()).Run(dy, /*before=*/0.5f);
  const auto want = DeviceRun(c, y, &ThisMachine()).Run(dy, /*before=*/0.5f);
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 1; i < want.size(); ++i) {
    SCOPED_TRACE(absl::StrCat("gradient ", i - 1));
    testing::ExpectNear(got[i], {want[i].begin(), want[i].end()}, kTolerance);
  }
}

INSTANTIATE_TEST_SUITE_P(AllOperators, OpGpuTest, ::testing::ValuesIn(Cases()),
                         [](const ::testing::TestParamInfo<OpCase>& row) {
                           return absl::StrCat(row.param.op_type, "_",
                                               row.index);
                         });

std::vector<OpCase> Convolutions() {
  std::vector<OpCase> cases = Cases();
  std::erase_if(cases, [](const OpCase& c) {
    return c.op_type != "Conv" && c.op_type != "ConvTranspose";
  });
  return cases;
}

// Results and gradients of all rows of convolutions.
std::vector<std::vector<float>> ConvolutionsOn(Device* device) {
  std::vector<std::vector<float>> all;
  for (const OpCase& c : Convolutions()) {
    const DoubleArray y = c.forward(c.DrawInputs());
    const std::vector<float> dy = ToFloats(RandomArray(y.dims, 3).values);
    for (auto& result : DeviceRun(c, y, device).Run(dy)) {
      all.push_back(std::move(result));
    }
  }
  return all;
}

void ExpectConvolutionsOfThisMachine(const std::vector<std::vector<float>>& got,
                                     double tolerance) {
  const auto want = ConvolutionsOn(&ThisMachine());
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    SCOPED_TRACE(absl::StrCat("array ", i));
    testing::ExpectNear(got[i], {want[i].begin(), want[i].end()}, tolerance);
  }
}

// OpGpuTest has them by cuDNN, where it is.
TEST(CudnnGpuTest, OwnConvolutionsComputeAsThisMachineDoes) {
  OnGpu gpu(CudaConvolutions::kOwn);
  ASSERT_NE(gpu.device(), nullptr);
  EXPECT_EQ(gpu.device()->description().convolutions, "own kernels");
  ExpectConvolutionsOfThisMachine(ConvolutionsOn(gpu.device()), kTolerance);
}

TEST(CudnnGpuTest, CudnnComputesAsThisMachineDoes) {
  if (const std::string why = OnGpu::WhyNoCudnn(); !why.empty()) {
    GTEST_SKIP() << why;
  }
  OnGpu gpu(CudaConvolutions::kCudnn);
  ASSERT_NE(gpu.device(), nullptr);
  const auto whole = ConvolutionsOn(gpu.device());
  ExpectConvolutionsOfThisMachine(whole, kTolerance);
  EXPECT_EQ(ConvolutionsOn(gpu.device()), whole) << "not the same bits";
  // TF32's factors have 11 bits.
  gpu.device()->AllowTf32(true);
  const auto rounded = ConvolutionsOn(gpu.device());
  ExpectConvolutionsOfThisMachine(rounded, 1e-2);
  EXPECT_EQ(ConvolutionsOn(gpu.device()), rounded) << "not the same bits";
}

// The relative distance of two neighbouring numbers, at most: a sum, or an exp,
// that is off by little may be rounded to the next number.
double StepOf(DType type) {
  return type == DType::kBfloat16 ? 1.0 / 128 : 1.0 / 1024;
}

// NaN is like NaN, and infinity like infinity.
bool IsNear(float got, float want, double tolerance) {
  if (got == want || (std::isnan(got) && std::isnan(want))) return true;
  return std::fabs(got - want) <= tolerance * std::max(1.0f, std::fabs(want));
}

void ExpectNearIn16Bits(const OpCase& c, DType type, Device* gpu) {
  const DoubleArray y = c.forward(c.DrawInputs());
  const std::vector<float> dy = ToFloats(RandomArray(y.dims, 3).values);
  const TypeRule rule = TypeRuleOf(c.op_type);
  // A pad's value is float32 in its row, and refused beside data of 16 bits.
  const auto op = DeviceRun(c, y, gpu, type, rule).Create();
  if (c.op_type == "Pad" && absl::IsInvalidArgument(op.status())) return;
  const auto got = DeviceRun(c, y, gpu, type, rule).Run(dy);
  const auto want = DeviceRun(c, y, &ThisMachine(), type, rule).Run(dy);
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_EQ(got[i].size(), want[i].size());
    for (size_t k = 0; k < want[i].size(); ++k) {
      ASSERT_TRUE(IsNear(got[i][k], want[i][k], StepOf(type)))
          << "array " << i << " element " << k << ": " << got[i][k]
          << ", on this machine " << want[i][k];
    }
  }
}

// Rows of 16 bits: passes that cuDNN computes in them, and widened ones.
TEST(CudnnGpuTest, ConvolutionsIn16BitsAreThoseOfThisMachine) {
  OnGpu gpu;
  ASSERT_NE(gpu.device(), nullptr);
  for (const OpCase& c : Convolutions()) {
    for (const DType type : {DType::kBfloat16, DType::kFloat16}) {
      ExpectNearIn16Bits(c, type, gpu.device());
    }
  }
}

TEST(NarrowOpGpuTest, ComputesIn16BitsAsThisMachineDoes) {
  OnGpu gpu;
  ASSERT_NE(gpu.device(), nullptr);
  int rows = 0;
  for (const OpCase& c : Cases()) {
    for (const DType type : {DType::kBfloat16, DType::kFloat16}) {
      if (!gpu.device()->computes_in(c.op_type, type)) continue;
      SCOPED_TRACE(
          absl::StrCat(c.op_type, ", row ", rows, ", ", DTypeName(type)));
      ExpectNearIn16Bits(c, type, gpu.device());
      ++rows;
    }
  }
  EXPECT_GT(rows, 100);
}

}  // namespace
}  // namespace syncline::worker
