#include "worker/job/progress_meter.h"

#include <limits>

namespace syncline::worker {

ProgressMeter::ProgressMeter(uint32_t rank, const Epochs& epochs,
                             int64_t start_clock, absl::Time start,
                             const TransferCounts* counts)
    : counts_(counts), whole_{.start = start}, recent_{.start = start} {
  progress_.set_rank(rank);
  progress_.set_clock(start_clock);
  progress_.set_clocks_total(epochs.clocks_total);
  progress_.set_clocks_per_epoch(epochs.steps_per_epoch);
}

void ProgressMeter::AddComputed(double forward, double backward,
                                double updates) {
  MutexLock lock(&mu_);
  progress_.set_forward_seconds(progress_.forward_seconds() + forward);
  progress_.set_backward_seconds(progress_.backward_seconds() + backward);
  progress_.set_update_seconds(progress_.update_seconds() + updates);
}

void ProgressMeter::SetClock(int64_t clock) {
  MutexLock lock(&mu_);
  progress_.set_clock(clock);
}

void ProgressMeter::AddStep(int64_t clock, uint64_t samples, double loss_sum,
                            const StepTimes& times) {
  MutexLock lock(&mu_);
  progress_.set_clock(clock + 1);
  Add(samples, loss_sum, times);
}

void ProgressMeter::AddStepOfOther(uint64_t samples, double loss_sum,
                                   const StepTimes& times) {
  MutexLock lock(&mu_);
  Add(samples, loss_sum, times);
}

void ProgressMeter::Add(uint64_t samples, double loss_sum,
                        const StepTimes& times) {
  WorkerProgress& p = progress_;
  p.set_samples(p.samples() + samples);
  whole_.Add(samples, loss_sum);
  recent_.Add(samples, loss_sum);
  p.set_data_seconds(p.data_seconds() + absl::ToDoubleSeconds(times.data));
  p.set_compute_seconds(p.compute_seconds() +
                        absl::ToDoubleSeconds(times.compute));
  p.set_push_seconds(p.push_seconds() + absl::ToDoubleSeconds(times.push));
  p.set_wait_seconds(p.wait_seconds() + absl::ToDoubleSeconds(times.wait));
  p.set_pull_seconds(p.pull_seconds() + absl::ToDoubleSeconds(times.pull));
}

void ProgressMeter::SetLossScale(double scale, uint64_t overflowed_steps) {
  MutexLock lock(&mu_);
  progress_.set_loss_scale(scale);
  progress_.set_overflowed_steps(overflowed_steps);
}

WorkerProgress ProgressMeter::Report(absl::Time now) {
  MutexLock lock(&mu_);
  WorkerProgress report = Counted();
  recent_.Describe(now, &report);
  recent_ = {.start = now};
  return report;
}

WorkerProgress ProgressMeter::Totals(absl::Time now) const {
  MutexLock lock(&mu_);
  WorkerProgress report = Counted();
  whole_.Describe(now, &report);
  return report;
}

WorkerProgress ProgressMeter::Counted() const {
  WorkerProgress progress = progress_;
  if (counts_ == nullptr) return progress;
  progress.set_gradient_bytes(counts_->gradient_bytes);
  progress.set_gradient_float32_bytes(counts_->gradient_float32_bytes);
  progress.set_value_bytes(counts_->value_bytes);
  progress.set_value_float32_bytes(counts_->value_float32_bytes);
  return progress;
}

void ProgressMeter::Interval::Describe(absl::Time now,
                                       WorkerProgress* progress) const {
  const double seconds = absl::ToDoubleSeconds(now - start);
  const auto count = static_cast<double>(samples);
  progress->set_loss(samples > 0 ? loss_sum / count
                                 : std::numeric_limits<double>::quiet_NaN());
  progress->set_samples_per_second(seconds > 0 ? count / seconds : 0);
}

}  // namespace syncline::worker
