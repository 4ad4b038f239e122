// Goal: what a GPU computes together is what it computes one after the other,
// and cuBLASLt's epilogues are what this program takes them for. Method: the
// models of executor_fusion_test, and products with epilogues of several
// shapes, on the GPU and on this machine's processors.

#include <cmath>
#include <iostream>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/device/kernel_table.h"
#include "kernels/device/matrix_product_kernels.h"
#include "tests/gpu/gpu.h"
#include "tests/testing/arrays.h"
#include "tests/testing/status_matchers.h"
#include "tests/unit/worker/compute/device_steps.h"

namespace syncline {
namespace {

using worker::ExpectSameStepsOn;
using worker::FusedBlock;
using worker::Gemms;

constexpr char kTanhGelu[] = "Gelu <approximate = \"tanh\">";

TEST(FusionGpuTest, AFusedBlockIsThatOfThisMachine) {
  OnGpu gpu;
  ASSERT_NE(gpu.device(), nullptr);
  for (const int width : {16, 128, 7}) {
    SCOPED_TRACE(width);
    const auto m = FusedBlock(width);
    ExpectSameStepsOn(gpu.device(), m, 1, 1, DType::kFloat32, 2e-4);
    ExpectSameStepsOn(gpu.device(), m, 2, 2, DType::kFloat32, 2e-4);
    ExpectSameStepsOn(gpu.device(), m, 1, 1, DType::kBfloat16, 16.0 / 256);
  }
}

TEST(FusionGpuTest, FusedGemmsAreThoseOfThisMachine) {
  OnGpu gpu;
  ASSERT_NE(gpu.device(), nullptr);
  for (const char* const function : {"Relu", kTanhGelu}) {
    SCOPED_TRACE(function);
    const auto m = Gemms(function);
    ExpectSameStepsOn(gpu.device(), m, 1, 1, DType::kFloat32, 2e-4);
    ExpectSameStepsOn(gpu.device(), m, 1, 1, DType::kBfloat16, 8.0 / 256);
  }
}

// Gradients of a step, whose operators are fused or not.
std::vector<std::vector<float>> GradientsOf(Device* device,
                                            const testing::TrainingModel& m,
                                            bool fuses, DType type) {
  worker::SeededExecutor executor(m, LossSpec::SOFTMAX_CROSS_ENTROPY, 6, 1, 1,
                                  1, nullptr, device, type, /*batch_max=*/0,
                                  /*takes_tf32=*/false, fuses);
  executor.Step(executor.MakeBatch(6));
  return executor.Gradients();
}

TEST(FusionGpuTest, TwoStepsHaveTheSameBits) {
  OnGpu gpu;
  ASSERT_NE(gpu.device(), nullptr);
  for (const DType type : {DType::kFloat32, DType::kBfloat16}) {
    for (const auto& m : {FusedBlock(128), Gemms("Relu"), Gemms(kTanhGelu)}) {
      const auto first = GradientsOf(gpu.device(), m, /*fuses=*/true, type);
      EXPECT_EQ(GradientsOf(gpu.device(), m, /*fuses=*/true, type), first);
      const auto apart = GradientsOf(gpu.device(), m, /*fuses=*/false, type);
      const double tolerance = type == DType::kFloat32 ? 2e-4 : 16.0 / 256;
      for (size_t i = 0; i < apart.size(); ++i) {
        SCOPED_TRACE(absl::StrCat("parameter ", i));
        testing::ExpectNear(first[i], {apart[i].begin(), apart[i].end()},
                            tolerance);
      }
    }
  }
}

// A product whose bias is NaN: none of its results may be a number. The plan
// looks at one small product alone (kernels/cuda/matrix_product.cc).
TEST(FusionGpuTest, AnEpilogueKeepsNan) {
  OnGpu gpu;
  ASSERT_NE(gpu.device(), nullptr);
  Device& device = *gpu.device();
  const auto stream = *device.MakeStream();
  for (const auto function : {ProductEpilogue::Function::kRelu,
                              ProductEpilogue::Function::kGeluTanh}) {
    for (const int64_t size : {16, 128, 1024, 4096}) {
      SCOPED_TRACE(absl::StrCat(static_cast<int>(function), " ", size));
      const auto product = device.kernels().matrix_product->make_with_epilogue(
          device, {.m = size, .n = size, .k = size},
          {.function = function, .has_bias = true});
      if (absl::IsUnimplemented(product.status())) {
        std::cout << "not computed together: " << product.status().message()
                  << "\n";
        continue;
      }
      ASSERT_OK(product.status());
      const size_t bytes = size * size * sizeof(float);
      ASSERT_OK_AND_ASSIGN(const DeviceMemory factor, device.Allocate(bytes));
      ASSERT_OK_AND_ASSIGN(const DeviceMemory result, device.Allocate(bytes));
      stream->Clear(factor.data(), bytes);
      const std::vector<float> nan(size,
                                   std::numeric_limits<float>::quiet_NaN());
      ASSERT_OK_AND_ASSIGN(const DeviceMemory bias,
                           Upload(device, absl::MakeConstSpan(nan)));
      ASSERT_OK((*product)->Run(*stream, factor.as<float>(), factor.as<float>(),
                                bias.as<float>(), /*kept=*/nullptr,
                                result.as<float>()));
      std::vector<float> got(size * size);
      stream->CopyToHost(got.data(), result.data(), bytes);
      ASSERT_OK(stream->Synchronize());
      int64_t numbers = 0;
      for (const float value : got) numbers += std::isnan(value) ? 0 : 1;
      EXPECT_EQ(numbers, 0);
    }
  }
}

}  // namespace
}  // namespace syncline
