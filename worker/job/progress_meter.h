#ifndef SYNCLINE_WORKER_JOB_PROGRESS_METER_H_
#define SYNCLINE_WORKER_JOB_PROGRESS_METER_H_

#include <cstdint>

#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "proto/job.pb.h"
#include "worker/data/epochs.h"
#include "worker/exchange/transfer_counts.h"

namespace syncline::worker {

// Progress of a worker's training thread, and where its time went. Written by
// that thread, reported by another. Thread-safe.
class ProgressMeter {
 public:
  // Where the time of one step went.
  struct StepTimes {
    absl::Duration data;     // until the batch was there
    absl::Duration compute;  // forward and backward
    absl::Duration push;     // until the last gradient had left
    absl::Duration wait;     // until the servers let the values be read
    absl::Duration pull;     // until the values of the next step were here

    absl::Duration total() const { return data + compute + push + wait + pull; }
  };

  // Clocks before `start_clock` were closed by an earlier attempt. `counts`,
  // which may be null, outlives this.
  ProgressMeter(uint32_t rank, const Epochs& epochs, int64_t start_clock,
                absl::Time start, const TransferCounts* counts = nullptr);

  // Step `clock` was closed with `samples`, of which `loss_sum` is the loss.
  void AddStep(int64_t clock, uint64_t samples, double loss_sum,
               const StepTimes& times) ABSL_LOCKS_EXCLUDED(mu_);

  // The same of a step that was made in the place of another rank: the rank's
  // own clock stays.
  void AddStepOfOther(uint64_t samples, double loss_sum, const StepTimes& times)
      ABSL_LOCKS_EXCLUDED(mu_);

  // Seconds of steps' computation, as far as they are known now.
  void AddComputed(double forward, double backward, double updates)
      ABSL_LOCKS_EXCLUDED(mu_);

  // The rank has closed all clocks before this one, without a step.
  void SetClock(int64_t clock) ABSL_LOCKS_EXCLUDED(mu_);

  // Of the next step, and how many steps overflowed so far.
  void SetLossScale(double scale, uint64_t overflowed_steps)
      ABSL_LOCKS_EXCLUDED(mu_);

  // Loss and speed are over the time since the previous report.
  WorkerProgress Report(absl::Time now) ABSL_LOCKS_EXCLUDED(mu_);
  // Loss and speed are over all of it.
  WorkerProgress Totals(absl::Time now) const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Interval {
    absl::Time start;
    uint64_t samples = 0;
    double loss_sum = 0;

    void Add(uint64_t more_samples, double more_loss) {
      samples += more_samples;
      loss_sum += more_loss;
    }
    void Describe(absl::Time now, WorkerProgress* progress) const;
  };

  void Add(uint64_t samples, double loss_sum, const StepTimes& times)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Progress as it is, with what counts_ has.
  WorkerProgress Counted() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const TransferCounts* const counts_;
  mutable Mutex mu_;
  WorkerProgress progress_ ABSL_GUARDED_BY(mu_);
  Interval whole_ ABSL_GUARDED_BY(mu_);
  Interval recent_ ABSL_GUARDED_BY(mu_);  // since the last report
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_JOB_PROGRESS_METER_H_
