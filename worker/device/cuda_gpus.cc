#include "worker/device/cuda_gpus.h"

#include "absl/strings/str_cat.h"
#include "common/system/local_socket.h"

namespace syncline::worker {

GpuSource CudaGpus(CudaConvolutions convolutions, bool has_graphs) {
  return {.count = CountCudaDevices,
          .open =
              [=](int number) {
                return OpenCudaDevice(number, convolutions, has_graphs);
              },
          .claim =
              [](const std::string& address) {
                return ClaimLocalName(absl::StrCat("syncline-gpu-", address));
              }};
}

}  // namespace syncline::worker
