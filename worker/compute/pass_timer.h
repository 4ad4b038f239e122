#ifndef SYNCLINE_WORKER_COMPUTE_PASS_TIMER_H_
#define SYNCLINE_WORKER_COMPUTE_PASS_TIMER_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "kernels/device/device.h"
#include "kernels/device/device_meter.h"

namespace syncline::worker {

// What a GPU has copied and computed; null: the device is the host, or a double
// of a GPU.
DeviceMeter* MeterOf(Device& device);

// Has a GPU time the forward and backward passes of training steps, for its
// DeviceMeter: the first two steps, and then one of kPeriod, which stands for
// those since the one before. No step waits for that. On other devices nothing
// is done. Thread-compatible.
class PassTimer {
 public:
  static constexpr int64_t kPeriod = 16;

  // Once. `device` outlives this. Errors: the device's.
  absl::Status Allocate(Device& device);

  void BeginStep();
  // Around the forward pass of a part of the step, with the loss, and behind
  // its backward pass with the copies of gradients.
  void BeginForward(Stream& stream);
  void EndForward(Stream& stream);
  void EndBackward(Stream& stream);
  // All work of the part is done.
  void EndPart();

 private:
  bool is_timed() const { return meter_ != nullptr && is_timed_; }

  DeviceMeter* meter_ = nullptr;  // null: no GPU
  std::unique_ptr<Timer> forward_;
  std::unique_ptr<Timer> backward_;
  int64_t steps_ = 0;
  int64_t timed_at_ = 0;    // of steps_, the latest
  int64_t stands_for_ = 0;  // steps, where the step is timed
  bool is_timed_ = false;
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_COMPUTE_PASS_TIMER_H_
