#ifndef SYNCLINE_WORKER_JOB_WORKER_METRICS_H_
#define SYNCLINE_WORKER_JOB_WORKER_METRICS_H_

#include <array>
#include <cstdint>

#include "absl/time/time.h"
#include "common/daemon/metrics.h"
#include "worker/client/transport/client_telemetry.h"
#include "worker/job/progress_meter.h"

namespace syncline::worker {

// All metrics of the worker role: what one process did, over all its jobs.
// Thread-safe. (The metrics that a job's evaluation computes are in
// worker/evaluation/evaluation_metrics.h.)
class WorkerMetrics {
 public:
  // `registry` outlives this; null: nothing is recorded.
  explicit WorkerMetrics(MetricsRegistry* registry);
  WorkerMetrics(const WorkerMetrics&) = delete;
  WorkerMetrics& operator=(const WorkerMetrics&) = delete;

  void OnStep(uint64_t samples, const ProgressMeter::StepTimes& times);
  // Numbers fed to a step: of samples, and what their lists are padded with.
  void OnFed(int64_t values, int64_t padding);
  // Of the next step.
  void OnLossScale(double scale);
  void OnOverflow();
  void OnJobRunning(bool running);
  void OnEvaluation(uint64_t samples, absl::Duration took);
  // Of `read` rows that a cache might have had, `pulled` were not there.
  void OnCachedRows(size_t read, size_t pulled);

  // Where the process's clients of the ps count; this outlives them.
  const ClientTelemetry& client() const { return client_; }

 private:
  void AddSteps(MetricsRegistry* registry);
  void AddEvaluations(MetricsRegistry* registry);
  void AddClient(MetricsRegistry* registry);
  void AddSharedMemory(MetricsRegistry* registry);

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
  Gauge* loss_scale_ = nullptr;
  Counter* overflowed_steps_ = nullptr;
  Gauge* running_jobs_ = nullptr;
  Counter* evaluated_samples_ = nullptr;
  Counter* evaluation_seconds_ = nullptr;
  Counter* cache_hits_ = nullptr;
  Counter* cache_misses_ = nullptr;
  ClientTelemetry client_;
  std::array<Counter*, kSharedFallbackCount> shared_fallbacks_{};
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_JOB_WORKER_METRICS_H_
