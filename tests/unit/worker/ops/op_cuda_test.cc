// Goal: the kernels for CUDA compute what those of this machine do, and nothing
// that CUDA leaves undefined. Method: every row of op_table_test, forward and
// backward, on an emulated device, with several orders of blocks and threads,
// which must give the same bits. Convolutions are computed by our own kernels,
// and by cuDNN's double.

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "kernels/cpu/cpu_device.h"
#include "tests/testing/arrays.h"
#include "tests/testing/cuda_emulator/cudnn_double.h"
#include "tests/testing/cuda_emulator/emulated_device.h"
#include "tests/testing/op_case.h"
#include "tests/unit/worker/ops/device_run.h"
#include "worker/compute/type_rules.h"

namespace syncline::worker {
namespace {

using testing::EmulatedDevice;
using testing::RandomArray;

// Those without channels in blocks, which are this machine's.
std::vector<OpCase> Cases() {
  std::vector<OpCase> cases = testing::AllOpCases();
  std::erase_if(cases, [](const OpCase& c) {
    return c.input_block > 1 || c.output_block > 1;
  });
  return cases;
}

class OpCudaTest : public ::testing::TestWithParam<OpCase> {};

TEST_P(OpCudaTest, ComputesAsThisMachineDoes) {
  const OpCase& c = GetParam();
  const DoubleArray y = c.forward(c.DrawInputs());
  const std::vector<float> dy = ToFloats(RandomArray(y.dims, 3).values);
  std::vector<std::vector<float>> first;
  for (const uint64_t seed : {1, 2, 3}) {
    EmulatedDevice device(seed);
    DeviceRun run(c, y, &device);
    ASSERT_EQ(run.Create().status(), absl::OkStatus());
    const auto results = run.Run(dy);
    ASSERT_EQ(device.status(), absl::OkStatus());
    if (seed == 1) first = results;
    EXPECT_EQ(results, first);
  }
  const auto want = DeviceRun(c, y, &ThisMachine()).Run(dy);
  ASSERT_EQ(first.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    SCOPED_TRACE(i == 0 ? "result" : absl::StrCat("gradient ", i - 1));
    testing::ExpectNear(first[i], {want[i].begin(), want[i].end()}, 1e-5);
  }
}

TEST_P(OpCudaTest, AddsToGradients) {
  const OpCase& c = GetParam();
  const DoubleArray y = c.forward(c.DrawInputs());
  const std::vector<float> dy = ToFloats(RandomArray(y.dims, 3).values);
  EmulatedDevice device;
  DeviceRun run(c, y, &device);
  ASSERT_EQ(run.Create().status(), absl::OkStatus());
  const auto got = run.Run(dy, /*before=*/0.5f);
  ASSERT_EQ(device.status(), absl::OkStatus());
  const auto want = DeviceRun(c, y, &ThisMachine()).Run(dy, /*before=*/0.5f);
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 1; i < want.size(); ++i) {
    testing::ExpectNear(got[i], {want[i].begin(), want[i].end()}, 1e-5);
  }
}

INSTANTIATE_TEST_SUITE_P(AllOperators, OpCudaTest, ::testing::ValuesIn(Cases()),
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

TEST(OpCudnnTest, ConvolutionsAreThoseOfThisMachine) {
  int64_t runs = 0;
  int rows = 0;
  for (const OpCase& c : Convolutions()) {
    SCOPED_TRACE(absl::StrCat(c.op_type, ", row ", rows++));
    const DoubleArray y = c.forward(c.DrawInputs());
    const std::vector<float> dy = ToFloats(RandomArray(y.dims, 3).values);
    for (const std::optional<float> before : {std::optional<float>(), {0.5f}}) {
      EmulatedDevice device;
      device.UseCudnn(testing::MakeCudnnDouble());
      const auto got = DeviceRun(c, y, &device).Run(dy, before);
      ASSERT_EQ(device.status(), absl::OkStatus());
      const auto want = DeviceRun(c, y, &ThisMachine()).Run(dy, before);
      ASSERT_EQ(got.size(), want.size());
      for (size_t i = 0; i < want.size(); ++i) {
        SCOPED_TRACE(i == 0 ? "result" : absl::StrCat("gradient ", i - 1));
        testing::ExpectNear(got[i], {want[i].begin(), want[i].end()}, 1e-5);
      }
      const testing::CudnnDoubleState& seen = testing::CudnnDouble();
      EXPECT_EQ(seen.runs_in_tf32, 0);
      EXPECT_EQ(seen.forwards, seen.backwards_of_filters);
      runs += seen.forwards;
    }
  }
  EXPECT_GT(rows, 15);
  EXPECT_GT(runs, rows) << "most rows have padding that cuDNN takes";
}

// Passes in 16 bits and those that are widened for a bias: in TF32 factors that
// were rounded to 16 bits are multiplied exactly.
TEST(OpCudnnTest, In16BitsConvolutionsHaveTheSameValues) {
  int64_t in_16_bits = 0;
  for (const OpCase& c : Convolutions()) {
    SCOPED_TRACE(c.op_type);
    const TypeRule rule = TypeRuleOf(c.op_type);
    const DoubleArray y = c.forward(c.DrawInputs());
    const std::vector<float> dy = ToFloats(RandomArray(y.dims, 3).values);
    for (const DType type : {DType::kBfloat16, DType::kFloat16}) {
      EmulatedDevice device;
      device.UseCudnn(testing::MakeCudnnDouble());
      const auto got = DeviceRun(c, y, &device, type, rule).Run(dy);
      ASSERT_EQ(device.status(), absl::OkStatus());
      const testing::CudnnDoubleState& seen = testing::CudnnDouble();
      EXPECT_EQ(
          seen.runs_in_tf32 + seen.runs_in_16_bits,
          seen.forwards + seen.backwards_of_data + seen.backwards_of_filters);
      in_16_bits += seen.runs_in_16_bits;
      const auto want = DeviceRun(c, y, &ThisMachine(), type, rule).Run(dy);
      ASSERT_EQ(got.size(), want.size());
      // A sum that is off by little may be rounded to the next number.
      const double step = type == DType::kBfloat16 ? 1.0 / 128 : 1.0 / 1024;
      for (size_t i = 0; i < want.size(); ++i) {
        testing::ExpectNear(got[i], {want[i].begin(), want[i].end()}, step);
      }
    }
  }
  EXPECT_GT(in_16_bits, 30);
}

TEST(OpCudnnTest, WithoutCudnnTheOperatorIsRefusedByName) {
  EmulatedDevice device;
  device.UseCudnn(cuda::Cudnn::Load("libno-such-library.so.9"));
  const OpCase c = Convolutions()[0];
  const DoubleArray y = c.forward(c.DrawInputs());
  const absl::Status refused = DeviceRun(c, y, &device).Create().status();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()),
              ::testing::AllOf(
                  ::testing::HasSubstr("node \"it\" (Conv): "),
                  ::testing::HasSubstr("cuDNN 9, CUDA's library of "
                                       "convolutions, is not on this machine"),
                  ::testing::HasSubstr("--convolutions=own")));
}

}  // namespace
}  // namespace syncline::worker
