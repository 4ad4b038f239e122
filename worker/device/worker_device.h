#ifndef SYNCLINE_WORKER_DEVICE_WORKER_DEVICE_H_
#define SYNCLINE_WORKER_DEVICE_WORKER_DEVICE_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/system/file_descriptor.h"
#include "kernels/device/device.h"

namespace syncline::worker {

// The device that a worker process computes on, as --device says.
struct WorkerDevice {
  std::unique_ptr<Device> gpu;  // null: the processors of this machine
  std::string why_no_gpu;       // where it is null, for people
  std::string warning;          // for the log; empty: none
  // Tells other workers of this host that the GPU has a user.
  FileDescriptor claim;
};

// Where GPUs come from; tests have others than CUDA's.
struct GpuSource {
  std::function<int()> count;
  std::function<absl::StatusOr<std::unique_ptr<Device>>(int number)> open;
  // By Device::Description::address. Errors: AlreadyExists: another process of
  // this host has claimed it.
  std::function<absl::StatusOr<FileDescriptor>(const std::string& address)>
      claim;
};

// `flag`: "auto", "cpu" or "cuda:N", as DaemonOptions has checked it.
//
//   auto    the first GPU that can be used and no other worker of this host
//           has; if all have users, the first one, with a warning; if there is
//           none, the processors
//   cuda:N  that one, with a warning if another worker has it
//
// Errors, for cuda:N alone: those of GpuSource::open.
absl::StatusOr<WorkerDevice> OpenWorkerDevice(absl::string_view flag,
                                              const GpuSource& source);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_DEVICE_WORKER_DEVICE_H_
