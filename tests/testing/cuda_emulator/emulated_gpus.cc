// The GPU of a worker process of tests, in place of CUDA's: emulated_gpu_worker
// is syncline-worker with it. Where the variable SYNCLINE_EMULATED_GPU_FAILURE
// names a file, the GPU fails at the launch of the number in it, counted from
// the start of the process, and where the file has "hang" before the number,
// calls to it do not return from then on; or, where the file says "prepare", it
// fails when a job is prepared.

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
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

// As a driver does that has lost its GPU: what gives memory back hangs.
class HangsOnceItHasFailed : public testing::EmulatedDevice {
 protected:
  void Free(void* data, size_t bytes, bool is_pinned) override {
    if (!status().ok()) absl::SleepFor(absl::InfiniteDuration());
    EmulatedDevice::Free(data, bytes, is_pinned);
  }
};

}  // namespace

// Its convolutions are kernels of this program.
GpuSource CudaGpus(CudaConvolutions, bool has_graphs) {
  return {.count = [] { return 1; },
          .open = [has_graphs](
                      int number) -> absl::StatusOr<std::unique_ptr<Device>> {
            const char* const file =
                std::getenv("SYNCLINE_EMULATED_GPU_FAILURE");
            const auto text = ReadFile(file == nullptr ? "" : file, 100);
            if (text.ok() && *text == "prepare") {
              return std::make_unique<FailsInPreparation>();
            }
            absl::string_view moment = text.ok() ? *text : "";
            const bool hangs = absl::ConsumePrefix(&moment, "hang ");
            std::unique_ptr<testing::EmulatedDevice> device;
            if (hangs) {
              device = std::make_unique<HangsOnceItHasFailed>();
            } else {
              device = std::make_unique<testing::EmulatedDevice>();
            }
            device->OfferGraphs(has_graphs);
            int64_t launch = 0;
            if (absl::SimpleAtoi(moment, &launch)) {
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
