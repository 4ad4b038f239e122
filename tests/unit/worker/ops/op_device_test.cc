// Goal: an operator leaves its tensors to the kernels of its device. Method:
// every row of op_table_test, forward and backward, on a device whose memory
// the host cannot touch; the bits are those of this machine.

#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/testing/arrays.h"
#include "tests/testing/op_case.h"
#include "tests/testing/poisoned_device.h"
#include "tests/unit/worker/ops/device_run.h"

namespace syncline::worker {
namespace {

using testing::DoubleArray;
using testing::OpCase;
using testing::PoisonedDevice;
using testing::RandomArray;
using testing::ToFloats;

class OpDeviceTest : public ::testing::TestWithParam<OpCase> {};

TEST_P(OpDeviceTest, LeavesTheTensorsToTheKernels) {
  const OpCase& c = GetParam();
  DoubleArray y = c.forward(c.DrawInputs());
  const std::vector<float> dy = ToFloats(RandomArray(y.dims, 3).values);
  const auto expected = DeviceRun(c, y, &ThisMachine()).Run(dy);
  PoisonedDevice device;
  const auto results = DeviceRun(c, y, &device).Run(dy);
  EXPECT_EQ(results, expected);
  EXPECT_GT(device.launches(), 0);
}

INSTANTIATE_TEST_SUITE_P(AllOperators, OpDeviceTest,
                         ::testing::ValuesIn(testing::AllOpCases()),
                         [](const ::testing::TestParamInfo<OpCase>& row) {
                           return absl::StrCat(row.param.op_type, "_",
                                               row.index);
                         });

}  // namespace
}  // namespace syncline::worker
