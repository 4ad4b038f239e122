#ifndef SYNCLINE_WORKER_JOB_WORKER_METRICS_H_
#define SYNCLINE_WORKER_JOB_WORKER_METRICS_H_

#include <array>
#include <cstdint>

#include "absl/time/time.h"
#include "common/daemon/metrics.h"
#include "worker/client/shm_registration.h"
#include "worker/job/progress_meter.h"

namespace syncline::worker {

// All metrics of the worker role: what one process did, over all its jobs.
// Thread-safe. (What a job's evaluation computes is in
// worker/evaluation/evaluation_metrics.h.)
class WorkerMetrics {
 public:
  // `registry` outlives this; null: nothing is recorded.
  explicit WorkerMetrics(MetricsRegistry* registry);

  void OnStep(uint64_t samples, const ProgressMeter::StepTimes& times);
  // Numbers fed to a step: of samples, and what their lists are padded with.
  void OnFed(int64_t values, int64_t padding);
  void OnJobRunning(bool running);
  void OnEvaluation(uint64_t samples, absl::Duration took);
  // Of `read` rows that a cache might have had, `pulled` it had not.
  void OnCachedRows(size_t read, size_t pulled);

  // May be null.
  Counter* pushed_bytes() const { return pushed_bytes_; }
  Counter* pulled_bytes() const { return pulled_bytes_; }
  Counter* retries() const { return retries_; }
  Counter* held_back() const { return held_back_; }
  Counter* non_finite() const { return non_finite_; }
  Counter* shared_pushed_bytes() const { return shared_pushed_bytes_; }
  Counter* shared_pulled_bytes() const { return shared_pulled_bytes_; }
  Gauge* shared_links() const { return shared_links_; }

  void OnSharedFallback(SharedFallback reason);

 private:
  Counter* steps_ = nullptr;
  Counter* samples_ = nullptr;
  Counter* fed_values_ = nullptr;
  Counter* fed_padding_ = nullptr;
  Counter* data_seconds_ = nullptr;
  Counter* compute_seconds_ = nullptr;
  Counter* push_seconds_ = nullptr;
  Counter* wait_seconds_ = nullptr;
  Counter* pull_seconds_ = nullptr;
  Histogram* step_seconds_ = nullptr;
  Gauge* running_jobs_ = nullptr;
  Counter* evaluated_samples_ = nullptr;
  Counter* evaluation_seconds_ = nullptr;
  Counter* pushed_bytes_ = nullptr;
  Counter* pulled_bytes_ = nullptr;
  Counter* retries_ = nullptr;
  Counter* held_back_ = nullptr;
  Counter* non_finite_ = nullptr;
  Counter* cache_hits_ = nullptr;
  Counter* cache_misses_ = nullptr;
  Counter* shared_pushed_bytes_ = nullptr;
  Counter* shared_pulled_bytes_ = nullptr;
  Gauge* shared_links_ = nullptr;
  std::array<Counter*, kSharedFallbackCount> shared_fallbacks_{};
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_JOB_WORKER_METRICS_H_
