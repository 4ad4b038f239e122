#include "kernels/cuda/nvml.h"

#include <dlfcn.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace syncline {
namespace {

// The part of NVML's stable interface that is used here (NVML API Reference,
// "Device Queries").
using NvmlDevice = void*;
struct NvmlUtilization {
  unsigned int gpu;     // percent
  unsigned int memory;  // likewise: of time, not of bytes
};
struct NvmlMemory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};
constexpr int kNvmlSuccess = 0;

struct Functions {
  int (*init)();
  int (*shutdown)();
  const char* (*error_string)(int error);
  int (*find)(const char* bus_id, NvmlDevice* device);
  int (*utilization)(NvmlDevice device, NvmlUtilization* utilization);
  int (*memory)(NvmlDevice device, NvmlMemory* memory);
};

class LoadedNvml : public Nvml {
 public:
  explicit LoadedNvml(const Functions& functions) : f_(functions) {}
  ~LoadedNvml() override { f_.shutdown(); }

  absl::StatusOr<Usage> UsageOf(const std::string& address) override {
    NvmlDevice device = nullptr;
    SYNCLINE_RETURN_IF_ERROR(Check(f_.find(address.c_str(), &device),
                                   absl::StrCat("no GPU at ", address)));
    NvmlUtilization utilization = {};
    SYNCLINE_RETURN_IF_ERROR(Check(f_.utilization(device, &utilization),
                                   absl::StrCat("utilization of ", address)));
    NvmlMemory memory = {};
    SYNCLINE_RETURN_IF_ERROR(
        Check(f_.memory(device, &memory), absl::StrCat("memory of ", address)));
    return Usage{.utilization = utilization.gpu / 100.0,
                 .used_bytes = memory.used,
                 .memory_bytes = memory.total};
  }

 private:
  absl::Status Check(int error, const std::string& what) const {
    if (error == kNvmlSuccess) return absl::OkStatus();
    return absl::InternalError(
        absl::StrCat("NVML: ", what, ": ", f_.error_string(error)));
  }

  const Functions f_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Nvml>> Nvml::Open(const std::string& file) {
  // It stays loaded: other parts of the driver may use it.
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return absl::NotFoundError(absl::StrCat("NVML: ", dlerror()));
  }
  Functions functions = {};
  std::string missing;
  const auto find = [&](const char* name, auto* to) {
    void* const address = dlsym(library, name);
    if (address == nullptr && missing.empty()) missing = name;
    *to = reinterpret_cast<std::decay_t<decltype(*to)>>(address);
  };
  find("nvmlInit_v2", &functions.init);
  find("nvmlShutdown", &functions.shutdown);
  find("nvmlErrorString", &functions.error_string);
  find("nvmlDeviceGetHandleByPciBusId_v2", &functions.find);
  find("nvmlDeviceGetUtilizationRates", &functions.utilization);
  find("nvmlDeviceGetMemoryInfo", &functions.memory);
  if (!missing.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("NVML: ", file, " has no ", missing));
  }
  const int error = functions.init();
  if (error != kNvmlSuccess) {
    return absl::InternalError(
        absl::StrCat("NVML: begin: ", functions.error_string(error)));
  }
  return std::make_unique<LoadedNvml>(functions);
}

}  // namespace syncline
