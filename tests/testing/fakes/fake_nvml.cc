// A library with NVML's functions, of one GPU at 0000:3b:00.0. Loaded by
// nvml_test in the place of the driver's.

#include <cstring>

namespace {
constexpr int kNotFound = 6;
constexpr int kGpuIsLost = 15;
int fake_gpu;
bool has_begun = false;
}  // namespace

extern "C" {
int nvmlInit_v2() {
  has_begun = true;
  return 0;
}
int nvmlShutdown() {
  has_begun = false;
  return 0;
}
const char* nvmlErrorString(int error) {
  return error == kNotFound ? "Not Found" : "GPU is lost";
}
int nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, void** device) {
  if (!has_begun || std::strcmp(bus_id, "0000:3b:00.0") != 0) return kNotFound;
  *device = &fake_gpu;
  return 0;
}
int nvmlDeviceGetUtilizationRates(void* device, unsigned int* percents) {
  if (device != &fake_gpu) return kGpuIsLost;
  percents[0] = 75;
  percents[1] = 20;
  return 0;
}
int nvmlDeviceGetMemoryInfo(void* device, unsigned long long* bytes) {
  if (device != &fake_gpu) return kGpuIsLost;
  bytes[0] = 1000;
  bytes[1] = 400;
  bytes[2] = 600;
  return 0;
}
}
