#include "worker/device/cuda_gpus.h"

#include "absl/strings/str_cat.h"
#include "common/system/local_socket.h"
#include "kernels/cuda/cuda_device.h"

namespace syncline::worker {

GpuSource CudaGpus() {
  return {.count = CountCudaDevices,
          .open = OpenCudaDevice,
          .claim = [](const std::string& address) {
            return ClaimLocalName(absl::StrCat("syncline-gpu-", address));
          }};
}

}  // namespace syncline::worker
