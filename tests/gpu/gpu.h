#ifndef SYNCLINE_TESTS_GPU_GPU_H_
#define SYNCLINE_TESTS_GPU_GPU_H_

#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "kernels/cuda/cuda_device.h"

namespace syncline {

// The exit code of gpu_test, and of gpu.sh, on a machine without a GPU.
inline constexpr int kExitWithoutGpu = 3;

// A test on the first GPU; main.cc has seen that there is one. Each test opens
// it anew, so that one test's error is not the next one's.
class OnGpu {
 public:
  explicit OnGpu(CudaConvolutions convolutions = Convolutions(),
                 bool has_graphs = true) {
    auto device = OpenCudaDevice(0, convolutions, has_graphs);
    EXPECT_TRUE(device.ok()) << device.status();
    if (device.ok()) device_ = *std::move(device);
  }
  // Why there is no cuDNN on this machine; empty: there is.
  static std::string WhyNoCudnn() {
    const auto device = OpenCudaDevice(0, CudaConvolutions::kCudnn);
    return device.ok() ? (*device)->description().why_no_convolutions
                       : std::string(device.status().message());
  }

  // Without graphs.
  static OnGpu Queued() { return OnGpu(Convolutions(), /*has_graphs=*/false); }

  // Null: the test has failed.
  Device* device() { return device_.get(); }

 private:
  // cuDNN's where it is on this machine: CudnnGpuTest says where it is not.
  static CudaConvolutions Convolutions() {
    static const bool has_cudnn = WhyNoCudnn().empty();
    return has_cudnn ? CudaConvolutions::kCudnn : CudaConvolutions::kOwn;
  }

  std::unique_ptr<Device> device_;
};

}  // namespace syncline

#endif  // SYNCLINE_TESTS_GPU_GPU_H_
