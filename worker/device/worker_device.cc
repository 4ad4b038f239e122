#include "worker/device/worker_device.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"

namespace syncline::worker {
namespace {

std::string SharedWarning(const Device& gpu) {
  return absl::StrCat("another worker of this machine computes on ", gpu.name(),
                      " too: they share its memory and its time");
}

// Takes `gpu`, which another worker may have, too.
WorkerDevice Take(std::unique_ptr<Device> gpu, const GpuSource& source) {
  WorkerDevice device;
  auto claim = source.claim(gpu->description().address);
  if (claim.ok()) {
    device.claim = *std::move(claim);
  } else if (absl::IsAlreadyExists(claim.status())) {
    device.warning = SharedWarning(*gpu);
  }
  device.gpu = std::move(gpu);
  return device;
}

absl::StatusOr<WorkerDevice> OpenNumbered(absl::string_view flag,
                                          const GpuSource& source) {
  absl::string_view digits = flag;
  int number = 0;
  if (!absl::ConsumePrefix(&digits, "cuda:") ||
      !absl::SimpleAtoi(digits, &number)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--device=", flag, ": must be auto, cpu or cuda:N"));
  }
  auto gpu = source.open(number);
  if (!gpu.ok()) {
    return Annotate(gpu.status(), absl::StrCat("--device=", flag));
  }
  return Take(*std::move(gpu), source);
}

WorkerDevice OpenAny(const GpuSource& source) {
  std::unique_ptr<Device> used;  // the first that another worker has
  // Also where there is none: the error says why.
  const int count = std::max(1, source.count());
  std::string why;
  for (int number = 0; number < count; ++number) {
    auto gpu = source.open(number);
    if (!gpu.ok()) {
      absl::StrAppend(&why, why.empty() ? "" : "; ", gpu.status().message());
      continue;
    }
    WorkerDevice device = Take(*std::move(gpu), source);
    if (device.warning.empty()) return device;
    if (used == nullptr) used = std::move(device.gpu);
  }
  WorkerDevice device;
  if (used == nullptr) {
    device.why_no_gpu = std::move(why);
    return device;
  }
  device.warning = SharedWarning(*used);
  device.gpu = std::move(used);
  return device;
}

}  // namespace

absl::StatusOr<WorkerDevice> OpenWorkerDevice(absl::string_view flag,
                                              const GpuSource& source) {
  if (flag == "auto") return OpenAny(source);
  if (flag != "cpu") return OpenNumbered(flag, source);
  WorkerDevice device;
  device.why_no_gpu = "it was started with --device=cpu";
  return device;
}

}  // namespace syncline::worker
