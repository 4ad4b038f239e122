// Goal: the kernels for CUDA compute what those of this machine do, and nothing
// that CUDA leaves undefined. Method: every row of op_table_test, forward and
// backward, on an emulated device, with several orders of blocks and threads,
// which must give the same bits.

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "kernels/cpu/cpu_device.h"
#include "tests/testing/arrays.h"
#include "tests/testing/cuda_emulator/emulated_device.h"
#include "tests/testing/op_case.h"
#include "tests/unit/worker/ops/device_run.h"

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

}  // namespace
}  // namespace syncline::worker
