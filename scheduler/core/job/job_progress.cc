#include "scheduler/core/job/job_progress.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace syncline::scheduler {
namespace {

constexpr size_t kCurvePointsMax = 256;

}  // namespace

JobProgressTracker::JobProgressTracker(uint32_t worker_count,
                                       uint32_t epochs_total,
                                       int64_t start_clock)
    : epochs_total_(epochs_total),
      start_clock_(start_clock),
      workers_(worker_count),
      lost_(worker_count, false) {
  for (uint32_t rank = 0; rank < worker_count; ++rank) {
    workers_[rank].set_rank(rank);
    workers_[rank].set_clock(start_clock);
    workers_[rank].set_loss(std::numeric_limits<double>::quiet_NaN());
  }
}

void JobProgressTracker::OnReport(uint32_t rank, const WorkerProgress& report) {
  if (rank >= workers_.size()) return;
  WorkerProgress& worker = workers_[rank];
  if (report.clock() < worker.clock()) return;
  // A report without a step in it says nothing new about the loss.
  const bool has_step = report.has_loss() && !std::isnan(report.loss());
  const double loss = has_step ? report.loss() : worker.loss();
  worker = report;
  worker.set_rank(rank);
  worker.set_loss(loss);
  AddToCurve();
}

void JobProgressTracker::Restore(const JobProgress& known) {
  for (const WorkerProgress& worker : known.workers()) {
    if (worker.rank() >= workers_.size()) continue;
    WorkerProgress& mine = workers_[worker.rank()];
    if (worker.clock() < mine.clock()) continue;
    const double loss = worker.has_loss()
                            ? worker.loss()
                            : std::numeric_limits<double>::quiet_NaN();
    mine = worker;
    mine.set_loss(loss);
    mine.set_samples_per_second(0);
  }
  // Of a worker that the record does not have.
  for (WorkerProgress& worker : workers_) {
    worker.set_clock(std::max(worker.clock(), known.clock()));
  }
}

void JobProgressTracker::RaiseClock(uint32_t rank, int64_t clock) {
  if (rank >= workers_.size()) return;
  workers_[rank].set_clock(std::max(workers_[rank].clock(), clock));
}

void JobProgressTracker::Lose(uint32_t rank) {
  if (rank >= workers_.size()) return;
  lost_[rank] = true;
  workers_[rank].set_samples_per_second(0);
}

void JobProgressTracker::AddToCurve() {
  const CurvePoint point{MinClock(), MeanLoss()};
  if (!std::isfinite(point.loss)) return;
  if (!curve_.empty() && point.clock < curve_.back().clock + curve_stride_) {
    return;
  }
  curve_.push_back(point);
  if (curve_.size() < kCurvePointsMax) return;
  for (size_t i = 0; i < curve_.size() / 2; ++i) curve_[i] = curve_[2 * i];
  curve_.resize(curve_.size() / 2);
  curve_stride_ *= 2;
}

int64_t JobProgressTracker::ClockOf(uint32_t rank) const {
  return rank < workers_.size() ? workers_[rank].clock() : 0;
}

int64_t JobProgressTracker::MinClock() const {
  int64_t clock = std::numeric_limits<int64_t>::max();
  for (size_t rank = 0; rank < workers_.size(); ++rank) {
    if (!lost_[rank]) clock = std::min(clock, workers_[rank].clock());
  }
  return workers_.empty() ? 0 : clock;
}

int64_t JobProgressTracker::MaxClock() const {
  int64_t clock = 0;
  for (const WorkerProgress& worker : workers_) {
    clock = std::max(clock, worker.clock());
  }
  return clock;
}

double JobProgressTracker::MeanLoss() const {
  double sum = 0;
  int count = 0;
  for (size_t rank = 0; rank < workers_.size(); ++rank) {
    const WorkerProgress& worker = workers_[rank];
    if (lost_[rank] || std::isnan(worker.loss())) continue;
    sum += worker.loss();
    ++count;
  }
  return count == 0 ? std::numeric_limits<double>::quiet_NaN() : sum / count;
}

// At the end of an epoch a job that goes on is in the next one.
int64_t JobProgressTracker::EpochAt(int64_t clock, int64_t clocks_per_epoch,
                                    bool ends_early) {
  const int64_t within = ends_early ? std::max<int64_t>(clock - 1, 0) : clock;
  return within / clocks_per_epoch + 1;
}

JobProgress JobProgressTracker::Summary(absl::Duration running) const {
  JobProgress progress;
  const int64_t clock = MinClock();
  int64_t clocks_total = 0;
  int64_t clocks_per_epoch = 0;
  double samples_per_second = 0;
  for (size_t rank = 0; rank < workers_.size(); ++rank) {
    if (lost_[rank]) continue;
    const WorkerProgress& worker = workers_[rank];
    clocks_total = std::max(clocks_total, worker.clocks_total());
    clocks_per_epoch = std::max(clocks_per_epoch, worker.clocks_per_epoch());
    samples_per_second += worker.samples_per_second();
    *progress.add_workers() = worker;
  }
  progress.set_clock(clock);
  progress.set_clocks_total(clocks_total);
  progress.set_epochs_total(epochs_total_);
  if (clocks_per_epoch > 0) {
    progress.set_epoch(static_cast<uint32_t>(std::min<int64_t>(
        epochs_total_, EpochAt(clock, clocks_per_epoch, ends_early_))));
  }
  progress.set_loss(MeanLoss());
  progress.set_samples_per_second(samples_per_second);
  const int64_t trained = clock - start_clock_;
  progress.set_seconds_left(
      trained > 0
          ? absl::ToDoubleSeconds(running) / static_cast<double>(trained) *
                static_cast<double>(std::max<int64_t>(0, clocks_total - clock))
          : -1);
  return progress;
}

}  // namespace syncline::scheduler
