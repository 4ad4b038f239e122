// The GPU of a worker process of tests, in place of CUDA's: emulated_gpu_worker
// is syncline-worker with it. Where the variable SYNCLINE_EMULATED_GPU_FAILURE
// names a file, the GPU fails at the launch of the number in it, counted from
// the start of the process, or, where the file says "prepare", when a job is
// prepared.

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/system/file.h"
#include "tests/testing/cuda_emulator/emulated_device.h"
#include "worker/device/cuda_gpus.h"

namespace syncline::worker {
namespace {

// Fails when a job makes its stream.
class FailsInPreparation : public testing::EmulatedDevice {
 public:
  absl::StatusOr<std::unique_ptr<Stream>> MakeStream() override {
    Report("the device was lost before its first launch");
    return status();
  }
};

}  // namespace

// Its convolutions are kernels of this program.
GpuSource CudaGpus(CudaConvolutions) {
  return {.count = [] { return 1; },
          .open = [](int number) -> absl::StatusOr<std::unique_ptr<Device>> {
            const char* const file =
                std::getenv("SYNCLINE_EMULATED_GPU_FAILURE");
            const auto text = ReadFile(file == nullptr ? "" : file, 100);
            if (text.ok() && *text == "prepare") {
              return std::make_unique<FailsInPreparation>();
            }
            auto device = std::make_unique<testing::EmulatedDevice>();
            int64_t launch = 0;
            if (text.ok() && absl::SimpleAtoi(*text, &launch)) {
              device->FailAt(launch);
            }
            return device;
          },
          // Each process has one of its own.
          .claim = [](const std::string&) -> absl::StatusOr<FileDescriptor> {
            return FileDescriptor();
          }};
}

}  // namespace syncline::worker
