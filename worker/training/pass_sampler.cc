#include "worker/training/pass_sampler.h"

#include <utility>

#include "worker/compute/pass_timer.h"

namespace syncline::worker {
namespace {

// Times of forward and backward passes, in one unit.
struct Passes {
  double forward = 0;
  double backward = 0;
};

Passes PassesOf(const StepProfile& profile) {
  uint64_t forward_ns = 0;
  uint64_t backward_ns = 0;
  for (int k = 0; k < profile.interval_activity_size(); ++k) {
    const uint64_t took = profile.interval_duration_ns(k);
    switch (profile.activities(profile.interval_activity(k)).kind()) {
      case StepProfile::FORWARD:
      case StepProfile::LOSS:
        forward_ns += took;
        break;
      case StepProfile::BACKWARD:
      case StepProfile::RECOMPUTED:
        backward_ns += took;
        break;
      default:
        break;
    }
  }
  return {static_cast<double>(forward_ns), static_cast<double>(backward_ns)};
}

}  // namespace

PassSampler::PassSampler(Executor* executor, WorkerMetrics* metrics,
                         ProgressMeter* meter)
    : executor_(*executor), metrics_(*metrics), meter_(*meter) {
  Stream* const stream = executor_.on_device().stream;
  if (stream == nullptr) return;
  gpu_ = MeterOf(stream->device());
  if (gpu_ == nullptr) return;
  gpu_forward_ = gpu_->pass_seconds(DeviceMeter::kForward);
  gpu_backward_ = gpu_->pass_seconds(DeviceMeter::kBackward);
}

StepRecorder* PassSampler::BeginStep(StepRecorder* profile) {
  // The step before has failed.
  if (recorder_.has_value() && profile == nullptr) {
    executor_.UseRecorder(nullptr);
  }
  recorder_.reset();
  if (gpu_ != nullptr || profile != nullptr) return profile;
  if (steps_++ % kPeriod != 0) return nullptr;
  recorder_.emplace(/*steps=*/1);
  recorder_->BeginStep(/*clock=*/0);
  executor_.UseRecorder(&*recorder_);
  return &*recorder_;
}

void PassSampler::EndStep(absl::Duration computing, absl::Duration updates) {
  computing_ += computing;
  Passes passes;
  if (gpu_ != nullptr) {
    const double forward = gpu_->pass_seconds(DeviceMeter::kForward);
    const double backward = gpu_->pass_seconds(DeviceMeter::kBackward);
    passes = {forward - gpu_forward_, backward - gpu_backward_};
    gpu_forward_ = forward;
    gpu_backward_ = backward;
  } else if (recorder_.has_value()) {
    executor_.UseRecorder(nullptr);
    passes = PassesOf(recorder_->profile());
    recorder_.reset();
  }
  // The measured times have waits for other workers in them, too: they say in
  // which shares the time of computing is that of the passes.
  double forward = 0;
  double backward = 0;
  const double sum = passes.forward + passes.backward;
  if (sum > 0) {
    const double seconds =
        absl::ToDoubleSeconds(std::exchange(computing_, absl::ZeroDuration()));
    forward = seconds * passes.forward / sum;
    backward = seconds - forward;
  }
  Count(forward, backward, updates);
}

void PassSampler::Count(double forward, double backward,
                        absl::Duration updates) {
  const double updating = absl::ToDoubleSeconds(updates);
  if (forward + backward + updating <= 0) return;
  metrics_.OnComputed(forward, backward, updating);
  meter_.AddComputed(forward, backward, updating);
}

}  // namespace syncline::worker
