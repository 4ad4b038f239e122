#ifndef SYNCLINE_TESTS_GPU_GPU_H_
#define SYNCLINE_TESTS_GPU_GPU_H_

#include <memory>

#include "gtest/gtest.h"
#include "kernels/cuda/cuda_device.h"

namespace syncline {

// The exit code of gpu_test, and of gpu.sh, on a machine without a GPU.
inline constexpr int kExitWithoutGpu = 3;

// A test on the first GPU; main.cc has seen that there is one. Each test opens
// it anew, so that one test's error is not the next one's.
class OnGpu {
 public:
  OnGpu() {
    auto device = OpenCudaDevice(0);
    EXPECT_TRUE(device.ok()) << device.status();
    if (device.ok()) device_ = *std::move(device);
  }

  // Null: the test has failed.
  Device* device() { return device_.get(); }

 private:
  std::unique_ptr<Device> device_;
};

}  // namespace syncline

#endif  // SYNCLINE_TESTS_GPU_GPU_H_
