#ifndef SYNCLINE_WORKER_TRAINING_PASS_SAMPLER_H_
#define SYNCLINE_WORKER_TRAINING_PASS_SAMPLER_H_

#include <cstdint>
#include <optional>

#include "absl/time/time.h"
#include "kernels/device/device_meter.h"
#include "worker/compute/executor.h"
#include "worker/compute/step_recorder.h"
#include "worker/job/progress_meter.h"
#include "worker/job/worker_metrics.h"

namespace syncline::worker {

// Counts in a worker's metrics, and in its progress, what the time of its
// training steps' computation consists of. On the host the first step and then
// one of kPeriod is recorded as for a profile, and stands for those since the
// one before; other steps cost nothing. A GPU measures itself (PassTimer), and
// is asked after each step. The training thread.
class PassSampler {
 public:
  static constexpr int64_t kPeriod = 32;

  // All outlive this.
  PassSampler(Executor* executor, WorkerMetrics* metrics, ProgressMeter* meter);

  // Around the computation of a step. `profile`: its recorder, which the
  // executor uses; null: there is none, and what is returned is to be used for
  // what else the step records, null as well or a recorder of this.
  StepRecorder* BeginStep(StepRecorder* profile);
  // `computing`: of the step, without the updates.
  void EndStep(absl::Duration computing, absl::Duration updates);

 private:
  void Count(double forward, double backward, absl::Duration updates);

  Executor& executor_;
  WorkerMetrics& metrics_;
  ProgressMeter& meter_;
  const DeviceMeter* gpu_ = nullptr;  // null: the host computes
  double gpu_forward_ = 0;            // of the meter, as it was counted
  double gpu_backward_ = 0;
  int64_t steps_ = 0;
  std::optional<StepRecorder> recorder_;  // while a step is recorded
  absl::Duration computing_;              // since the latest one
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_TRAINING_PASS_SAMPLER_H_
