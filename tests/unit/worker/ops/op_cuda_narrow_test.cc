// Goal: a GPU computes operators in 16 bits as float32 kernels between casts
// would: each element is read exactly, and each result is rounded once. Method:
// rows of op_table_test in bfloat16 and float16, on an emulated device that
// cannot cast, against this machine, which widens. All bits are the same where
// no sum may have another order.

#include <bit>
#include <cmath>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/device/cast_kernels.h"
#include "kernels/device/kernel_table.h"
#include "tests/testing/arrays.h"
#include "tests/testing/cuda_emulator/emulated_device.h"
#include "tests/testing/op_case.h"
#include "tests/unit/worker/ops/device_run.h"
#include "worker/compute/type_rules.h"

namespace syncline::worker {
namespace {

using testing::EmulatedDevice;
using testing::RandomArray;

// On it nothing is widened: an operator that is made computes in 16 bits.
class CastlessDevice : public EmulatedDevice {
 public:
  explicit CastlessDevice(uint64_t seed = 1)
      : EmulatedDevice(seed), kernels_(EmulatedDevice::kernels()) {
    kernels_.cast = &casts_;
  }
  const KernelTable& kernels() const override { return kernels_; }

 private:
  const CastKernels casts_ = {};
  KernelTable kernels_;
};

struct NarrowCase {
  OpCase op;
  DType type;

  DeviceRun On(Device* device) const {
    return DeviceRun(op, op.forward(op.DrawInputs()), device, type,
                     TypeRuleOf(op.op_type));
  }
};

std::vector<NarrowCase> Cases() {
  std::vector<NarrowCase> cases;
  EmulatedDevice device;
  for (const OpCase& c : testing::AllOpCases()) {
    if (c.input_block > 1 || c.output_block > 1) continue;
    for (const DType type : {DType::kBfloat16, DType::kFloat16}) {
      if (!device.computes_in(c.op_type, type)) continue;
      NarrowCase narrow = {c, type};
      CastlessDevice castless;
      // Some forms are widened: WhatIsWidened has their operators.
      if (!narrow.On(&castless).Create().ok()) continue;
      cases.push_back(std::move(narrow));
    }
  }
  return cases;
}

// Results that are sums.
const std::set<std::string>& Sums() {
  static const auto& types = *new std::set<std::string>{"Attention",
                                                        "AveragePool",
                                                        "BatchNormalization",
                                                        "GroupNormalization",
                                                        "InstanceNormalization",
                                                        "Conv",
                                                        "ConvTranspose",
                                                        "Gemm",
                                                        "GlobalAveragePool",
                                                        "LayerNormalization",
                                                        "LogSoftmax",
                                                        "MatMul",
                                                        "RMSNormalization",
                                                        "ReduceL1",
                                                        "ReduceL2",
                                                        "ReduceMean",
                                                        "ReduceLogSum",
                                                        "ReduceSum",
                                                        "ReduceSumSquare",
                                                        "Softmax"};
  return types;
}
// Gradients that are.
const std::set<std::string>& SumsInGradients() {
  static const auto& types = *new std::set<std::string>{
      "Gather", "GatherElements", "GatherND", "GlobalMaxPool", "MaxPool", "Pad",
      "Tile"};
  return types;
}

// The relative distance of two neighbouring numbers, at most.
double StepOf(DType type) {
  return type == DType::kBfloat16 ? 1.0 / 128 : 1.0 / 1024;
}

std::vector<float> DrawGradient(const OpCase& c) {
  return ToFloats(RandomArray(c.forward(c.DrawInputs()).dims, 3).values);
}

// One NaN is like another.
std::vector<uint32_t> BitsOf(const std::vector<float>& values) {
  std::vector<uint32_t> bits;
  for (const float value : values) {
    bits.push_back(std::isnan(value) ? 0x7fc00000
                                     : std::bit_cast<uint32_t>(value));
  }
  return bits;
}

void ExpectAsThisMachine(const NarrowCase& c,
                         const std::vector<std::vector<float>>& got,
                         const std::vector<std::vector<float>>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    SCOPED_TRACE(i == 0 ? "result" : absl::StrCat("gradient ", i - 1));
    const bool is_repeated = want[i].size() != want[0].size();
    const bool is_sum =
        Sums().contains(c.op.op_type) ||
        (i > 0 && (is_repeated || SumsInGradients().contains(c.op.op_type)));
    if (is_sum) {
      // Attention rounds its weights before they are factors.
      const double steps = c.op.op_type == "Attention" ? 3 : 1;
      testing::ExpectNear(got[i], {want[i].begin(), want[i].end()},
                          steps * StepOf(c.type));
    } else {
      EXPECT_EQ(BitsOf(got[i]), BitsOf(want[i]));
    }
  }
}

class OpCudaNarrowTest : public ::testing::TestWithParam<NarrowCase> {};

TEST_P(OpCudaNarrowTest, ComputesAsThisMachineDoes) {
  const NarrowCase& c = GetParam();
  const std::vector<float> dy = DrawGradient(c.op);
  std::vector<std::vector<float>> first;
  for (const uint64_t seed : {1, 2}) {
    CastlessDevice device(seed);
    const auto results = c.On(&device).Run(dy);
    ASSERT_EQ(device.status(), absl::OkStatus());
    if (seed == 1) first = results;
    EXPECT_EQ(results, first);
  }
  ExpectAsThisMachine(c, first, c.On(&ThisMachine()).Run(dy));
}

TEST_P(OpCudaNarrowTest, AddsToGradientsWithOneRounding) {
  const NarrowCase& c = GetParam();
  const std::vector<float> dy = DrawGradient(c.op);
  CastlessDevice device;
  const auto got = c.On(&device).Run(dy, /*before=*/0.5f);
  ASSERT_EQ(device.status(), absl::OkStatus());
  ExpectAsThisMachine(c, got, c.On(&ThisMachine()).Run(dy, /*before=*/0.5f));
}

// Forms of operators that a GPU computes in 16 bits, but not these.
TEST(OpCudaNarrowFormsTest, WhatIsWidened) {
  std::set<std::string> widened;
  for (const OpCase& c : testing::AllOpCases()) {
    if (c.input_block > 1 || c.output_block > 1) continue;
    CastlessDevice device;
    if (!device.computes_in(c.op_type, DType::kBfloat16)) continue;
    const NarrowCase narrow = {c, DType::kBfloat16};
    if (!narrow.On(&device).Create().ok()) widened.insert(c.op_type);
  }
  EXPECT_THAT(widened, ::testing::ElementsAre("Attention", "ConvTranspose",
                                              "Gemm", "MatMul", "Pad"));
}

INSTANTIATE_TEST_SUITE_P(AllOperators, OpCudaNarrowTest,
                         ::testing::ValuesIn(Cases()),
                         [](const ::testing::TestParamInfo<NarrowCase>& row) {
                           return absl::StrCat(row.param.op.op_type, "_",
                                               DTypeName(row.param.type), "_",
                                               row.index);
                         });

}  // namespace
}  // namespace syncline::worker
