#ifndef SYNCLINE_WORKER_COMPUTE_GRADIENT_SCALE_H_
#define SYNCLINE_WORKER_COMPUTE_GRADIENT_SCALE_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device/data_error.h"
#include "kernels/device/device.h"

namespace syncline::worker {

// The factor that a step's gradient has on its way through backward, on a
// device: multiplied in behind the loss, divided out of what leaves the worker.
// A factor is a power of two, so neither changes a bit of a float32 number that
// is normal before and after. Thread-compatible.
//
//   Use -> Scale -> backward -> Unscale of each array -> Copy -> Read
class GradientScale {
 public:
  // OK if the device has the kernel. Errors: InvalidArgument.
  static absl::Status RequireKernel(const Device& device);

  // Once. REQUIRES: RequireKernel. `device` outlives this. Errors: the
  // device's.
  absl::Status Allocate(Device& device, Stream& stream);

  // Of the arrays that are scaled from now on. REQUIRES: a power of two, and no
  // step is under way.
  void Use(Stream& stream, float factor);

  // Put into the stream: n float32 numbers of the device, in place. Unscale
  // notes the first number that is then NaN or infinite, of the array that came
  // first: `array` is what Read calls it.
  void Scale(Stream& stream, int64_t n, float* x) const;
  void Unscale(Stream& stream, int64_t n, float* x, int32_t array) const;

  // Puts into the stream: a copy of what Unscale has noted, for Read.
  void Copy(Stream& stream);
  struct Overflow {
    int32_t array = 0;
    int64_t position = 0;
  };
  // Since it was last read; nothing: all numbers were finite. REQUIRES: the
  // stream has been synchronized since Copy.
  std::optional<Overflow> Read(Stream& stream);
  // Puts into the stream: what was noted is forgotten.
  void Forget(Stream& stream);

 private:
  struct Factors {
    float up = 1;
    float down = 1;
  };
  Factors factors_;         // what the device copies
  DeviceMemory on_device_;  // Factors
  DeviceMemory overflow_;   // DataError
  DeviceMemory copy_;       // in memory of the host
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_COMPUTE_GRADIENT_SCALE_H_
