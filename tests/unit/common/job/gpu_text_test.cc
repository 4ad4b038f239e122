// Goal: a GPU is one short text in tables, with what computes its convolutions.
// Method: GPUs of workers that tell more and less.

#include "common/job/gpu_text.h"

#include "gtest/gtest.h"

namespace syncline {
namespace {

TEST(GpuTextTest, SaysWhatComputesConvolutions) {
  Gpu gpu;
  gpu.set_name("cuda:1");
  gpu.set_model("NVIDIA H200");
  EXPECT_EQ(GpuText(gpu), "cuda:1 NVIDIA H200");
  gpu.set_convolutions("cuDNN 9.19.0");
  EXPECT_EQ(GpuText(gpu), "cuda:1 NVIDIA H200, cuDNN 9.19.0");
  gpu.set_convolutions("own kernels");
  EXPECT_EQ(GpuText(gpu), "cuda:1 NVIDIA H200, convolutions: own kernels");
}

}  // namespace
}  // namespace syncline
