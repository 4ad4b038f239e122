#include "worker/training/pass_sampler.h"

#include "worker/compute/pass_timer.h"

namespace syncline::worker {
namespace {

// What a recorded step spent in its forward and its backward passes.
struct Passes {
  uint64_t forward_ns = 0;
  uint64_t backward_ns = 0;
};

Passes PassesOf(const StepProfile& profile) {
  Passes passes;
  for (int k = 0; k < profile.interval_activity_size(); ++k) {
    const uint64_t took = profile.interval_duration_ns(k);
    switch (profile.activities(profile.interval_activity(k)).kind()) {
      case StepProfile::FORWARD:
      case StepProfile::LOSS:
        passes.forward_ns += took;
        break;
      case StepProfile::BACKWARD:
      case StepProfile::RECOMPUTED:
        passes.backward_ns += took;
        break;
      default:
        break;
    }
  }
  return passes;
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
  if (gpu_ != nullptr) {
    const double forward = gpu_->pass_seconds(DeviceMeter::kForward);
    const double backward = gpu_->pass_seconds(DeviceMeter::kBackward);
    Count(forward - gpu_forward_, backward - gpu_backward_, updates);
    gpu_forward_ = forward;
    gpu_backward_ = backward;
    return;
  }
  computing_ += computing;
  double forward = 0;
  double backward = 0;
  if (recorder_.has_value()) {
    executor_.UseRecorder(nullptr);
    const Passes passes = PassesOf(recorder_->profile());
    const auto sum =
        static_cast<double>(passes.forward_ns + passes.backward_ns);
    if (sum > 0) {
      const double seconds = absl::ToDoubleSeconds(computing_);
      forward = seconds * static_cast<double>(passes.forward_ns) / sum;
      backward = seconds - forward;
      computing_ = absl::ZeroDuration();
    }
    recorder_.reset();
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
