#ifndef SYNCLINE_KERNELS_CUDA_LIBRARY_DEVICE_H_
#define SYNCLINE_KERNELS_CUDA_LIBRARY_DEVICE_H_

// A device and a stream as CUDA's libraries want them, without CUDA's headers:
// GPUs are such (cuda_device.cc), and so is the emulated device of tests, for
// doubles of the libraries.

#include <map>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "kernels/device/device.h"
#include "kernels/device/device_meter.h"

namespace syncline::cuda {

class Cudnn;

// A fact about a library on a device, by an array's type, once it is known.
// Thread-safe.
class FoundByType {
 public:
  using Find = absl::FunctionRef<absl::StatusOr<bool>()>;
  // `find` is called until it has found it out, by one thread at a time. Its
  // errors are not kept.
  absl::StatusOr<bool> Get(DType type, Find find) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    const auto known = found_.find(type);
    if (known != found_.end()) return known->second;
    absl::StatusOr<bool> found = find();
    if (found.ok()) found_[type] = *found;
    return found;
  }

 private:
  Mutex mu_;
  std::map<DType, bool> found_ ABSL_GUARDED_BY(mu_);
};

class LibraryDevice : public Device {
 public:
  // CUDA's calls of this thread are for this device from now on.
  virtual void Enter() = 0;
  // The cuDNN of the device's convolutions; null: this program's own kernels
  // compute them. Errors: FailedPrecondition: cuDNN is not on this machine.
  virtual absl::StatusOr<Cudnn*> cudnn() const = 0;
  // As AllowTf32 has said.
  virtual bool takes_tf32() const = 0;
  // Errors: Internal: the device failed.
  virtual absl::StatusOr<std::unique_ptr<Timer>> MakeTimer() = 0;
  // Copies and passes of the device since this process began.
  DeviceMeter& meter() { return meter_; }
  // Whether the library's ReLU leaves NaN what it is.
  FoundByType& relu_keeps_nan() { return relu_keeps_nan_; }

  // Of a kernel's device.
  static LibraryDevice& Of(Device& device) {
    return static_cast<LibraryDevice&>(device);
  }

 private:
  DeviceMeter meter_;
  FoundByType relu_keeps_nan_;
};

class LibraryStream : public Stream {
 public:
  // The stream as a library takes it: a cudaStream_t. CUDA's calls of this
  // thread are for its device from now on.
  virtual void* ForLibraries() = 0;
  // Takes note of work that a library has put into it. `what` stays for ever.
  virtual void NoteLibraryCall(const char* what) = 0;

  static LibraryStream& Of(Stream& stream) {
    return static_cast<LibraryStream&>(stream);
  }
};

}  // namespace syncline::cuda

#endif  // SYNCLINE_KERNELS_CUDA_LIBRARY_DEVICE_H_
