#ifndef SYNCLINE_WORKER_COMPUTE_PASS_TIMER_H_
#define SYNCLINE_WORKER_COMPUTE_PASS_TIMER_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "kernels/device/device.h"
#include "kernels/device/device_meter.h"

namespace syncline::worker {

// The meter of a GPU; null: the device is the host, or a double of a GPU.
DeviceMeter* MeterOf(Device& device);

// Has a GPU time the forward and backward passes of training steps, for its
// DeviceMeter: the first two steps, and then one of kPeriod, which stands for
// those since the one before. Of a step in parts the last one is timed, and
// stands for the others. No step waits for that. On other devices nothing is
// done. Thread-compatible.
class PassTimer {
 public:
  static constexpr int64_t kPeriod = 16;

  // Once. `device` outlives this. Errors: the device's.
  absl::Status Allocate(Device& device);

  void BeginStep();
  // Around the work of a part.
  void Begin(Stream& stream);
  void End(Stream& stream);
  // Between the two, behind the loss. Where it is not called, as in a graph
  // that has both passes, their time is shared out as it was in the latest step
  // that was measured apart.
  void EndForward(Stream& stream);
  // All work of the step is done.
  void EndStep();

 private:
  bool is_timed() const { return meter_ != nullptr && is_timed_; }

  DeviceMeter* meter_ = nullptr;  // null: no GPU
  // Of the forward pass, or of both.
  std::unique_ptr<Timer> forward_;
  std::unique_ptr<Timer> backward_;
  int64_t steps_ = 0;
  int64_t timed_at_ = 0;    // of steps_, the latest
  int64_t stands_for_ = 0;  // steps, where the step is timed
  bool is_timed_ = false;
  int64_t parts_ = 0;      // of the step, that have begun
  bool is_apart_ = false;  // the latest part's passes are timed each
  // Of the time of both. Backward has two products for each of forward's.
  double forward_share_ = 1.0 / 3;
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_COMPUTE_PASS_TIMER_H_
