#ifndef SYNCLINE_KERNELS_CUDA_CUDA_DEVICE_H_
#define SYNCLINE_KERNELS_CUDA_CUDA_DEVICE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/device/device.h"

namespace syncline {

// GPUs that CUDA shows to this process; 0 where there is no driver, or this
// program was built without CUDA.
int CountCudaDevices();

// The implementation of a GPU's convolutions.
enum class CudaConvolutions {
  // cuDNN. Where it is not on this machine, layers of convolutions are refused
  // when they are made (FailedPrecondition), with what to do.
  kCudnn,
  kOwn,  // kernels of this program: slower, and they need no library
};

// GPU `number` of this machine, "cuda:<number>", which keeps work as graphs if
// `has_graphs`. Its errors are Internal and
// name the device, what CUDA says, the marked work that was running
// (Stream::Mark) and the kernel that was launched last: after most of them CUDA
// does nothing more for this process. Thread-safe.
// Errors: NotFound: there is no driver or no such GPU; FailedPrecondition: the
// driver is too old, or the GPU is older than compute capability 8.0, for which
// no kernels are built; Unimplemented: this program was built without CUDA.
absl::StatusOr<std::unique_ptr<Device>> OpenCudaDevice(
    int number, CudaConvolutions convolutions = CudaConvolutions::kCudnn,
    bool has_graphs = true);

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_CUDA_CUDA_DEVICE_H_
