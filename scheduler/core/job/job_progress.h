#ifndef SYNCLINE_SCHEDULER_CORE_JOB_JOB_PROGRESS_H_
#define SYNCLINE_SCHEDULER_CORE_JOB_JOB_PROGRESS_H_

#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "proto/job.pb.h"

namespace syncline::scheduler {

// One job's progress out of its workers' reports. Pure, thread-compatible.
class JobProgressTracker {
 public:
  struct CurvePoint {
    int64_t clock = 0;
    double loss = 0;
  };

  // `start_clock`: the workers begin there.
  JobProgressTracker(uint32_t worker_count, uint32_t epochs_total,
                     int64_t start_clock = 0);

  // `rank` is the sender's; a late report with a smaller clock is dropped, a
  // rank out of range ignored.
  void OnReport(uint32_t rank, const WorkerProgress& report);
  // Goes on from what a record has of the same attempt. Speeds are not known
  // until the workers report; no clock goes back.
  void Restore(const JobProgress& known);
  // The worker has closed at least so many.
  void RaiseClock(uint32_t rank, int64_t clock);
  // The others go on without this worker: it is in no summary any more.
  void Lose(uint32_t rank);
  // The job ends at a clock before its last one: from now on the epoch is the
  // last one that was begun, not one that would follow.
  void EndEarly() { ends_early_ = true; }
  bool ends_early() const { return ends_early_; }
  // The epoch, from 1 on, of a job that has closed `clock` clocks. REQUIRES:
  // `clocks_per_epoch` is positive.
  static int64_t EpochAt(int64_t clock, int64_t clocks_per_epoch,
                         bool ends_early);
  // Clocks closed by `rank`, as last reported; by the slowest worker.
  int64_t ClockOf(uint32_t rank) const;
  int64_t MinClock() const;
  int64_t MaxClock() const;  // by the foremost one

  // `running` is how long the job has been running.
  JobProgress Summary(absl::Duration running) const;
  // Training loss over clocks, thinned evenly to a few hundred points.
  absl::Span<const CurvePoint> curve() const { return curve_; }

 private:
  double MeanLoss() const;
  void AddToCurve();

  const uint32_t epochs_total_;
  const int64_t start_clock_;
  std::vector<WorkerProgress> workers_;  // by rank
  std::vector<bool> lost_;               // likewise
  std::vector<CurvePoint> curve_;
  int64_t curve_stride_ = 1;  // clocks between points, grows as it is thinned
  bool ends_early_ = false;
};

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_CORE_JOB_JOB_PROGRESS_H_
