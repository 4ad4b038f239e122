#ifndef SYNCLINE_KERNELS_CUDA_LIBRARY_DEVICE_H_
#define SYNCLINE_KERNELS_CUDA_LIBRARY_DEVICE_H_

// A device and a stream as CUDA's libraries want them, without CUDA's headers:
// GPUs are such (cuda_device.cc), and so is the emulated device of tests, for
// doubles of the libraries.

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/device/device.h"
#include "kernels/device/device_meter.h"

namespace syncline::cuda {

class Cudnn;

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
  // What the device has copied and computed since this process began.
  DeviceMeter& meter() { return meter_; }

  // Of a kernel's device.
  static LibraryDevice& Of(Device& device) {
    return static_cast<LibraryDevice&>(device);
  }

 private:
  DeviceMeter meter_;
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
