#include "worker/progress_meter.h"

#include <limits>

namespace syncline {

ProgressMeter::ProgressMeter(uint32_t rank, const Epochs& epochs,
                             absl::Time start)
    : epochs_(epochs), reported_(start) {
  progress_.set_rank(rank);
  progress_.set_clocks_total(epochs.clocks_total);
  progress_.set_clocks_per_epoch(epochs.steps_per_epoch);
}

void ProgressMeter::AddStep(int64_t clock, uint64_t samples, double loss_sum,
                            const StepTimes& times) {
  MutexLock lock(&mu_);
  WorkerProgress& p = progress_;
  p.set_clock(clock + 1);
  p.set_samples(p.samples() + samples);
  samples_since_ += samples;
  loss_since_ += loss_sum;
  p.set_data_seconds(p.data_seconds() + absl::ToDoubleSeconds(times.data));
  p.set_compute_seconds(p.compute_seconds() +
                        absl::ToDoubleSeconds(times.compute));
  p.set_push_seconds(p.push_seconds() + absl::ToDoubleSeconds(times.push));
  p.set_wait_seconds(p.wait_seconds() + absl::ToDoubleSeconds(times.wait));
}

WorkerProgress ProgressMeter::Report(absl::Time now) {
  MutexLock lock(&mu_);
  WorkerProgress report = progress_;
  const double seconds = absl::ToDoubleSeconds(now - reported_);
  const double samples = static_cast<double>(samples_since_);
  report.set_loss(samples_since_ > 0
                      ? loss_since_ / samples
                      : std::numeric_limits<double>::quiet_NaN());
  report.set_samples_per_second(seconds > 0 ? samples / seconds : 0);
  reported_ = now;
  samples_since_ = 0;
  loss_since_ = 0;
  return report;
}

}  // namespace syncline
