#ifndef SYNCLINE_WORKER_JOB_WORKER_METRICS_H_
#define SYNCLINE_WORKER_JOB_WORKER_METRICS_H_

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/daemon/metrics.h"
#include "proto/job.pb.h"
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

  // The job that this process trains or evaluates, until OnJobEnds.
  struct Job {
    std::string id;
    uint32_t rank = 0;
    // Of the plan of its step: all memory, and of that the arena.
    int64_t memory_bytes = 0;
    int64_t arena_bytes = 0;
  };
  void OnJobBegins(const Job& job) ABSL_LOCKS_EXCLUDED(mu_);
  void OnJobEnds() ABSL_LOCKS_EXCLUDED(mu_);
  // Of the job; a report without a step leaves the loss as it is.
  void OnProgress(const WorkerProgress& progress) ABSL_LOCKS_EXCLUDED(mu_);

  void OnStep(uint64_t samples, const ProgressMeter::StepTimes& times);
  // Seconds of training steps' computation, as far as they are known now.
  void OnComputed(double forward, double backward, double updates);
  // Numbers fed to a step: of samples, and what their lists are padded with.
  void OnFed(int64_t values, int64_t padding);
  // Of the next step.
  void OnLossScale(double scale);
  void OnOverflow();
  // A late gradient was applied at the open clock.
  void OnLateGradient();
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
  // The series of the job.
  void Collect(MetricSamples* samples) const ABSL_LOCKS_EXCLUDED(mu_);

  Counter* steps_ = nullptr;
  Counter* samples_ = nullptr;
  Counter* fed_values_ = nullptr;
  Counter* fed_padding_ = nullptr;
  Counter* data_seconds_ = nullptr;
  Counter* compute_seconds_ = nullptr;
  Counter* forward_seconds_ = nullptr;
  Counter* backward_seconds_ = nullptr;
  Counter* update_seconds_ = nullptr;
  Counter* push_seconds_ = nullptr;
  Counter* wait_seconds_ = nullptr;
  Counter* pull_seconds_ = nullptr;
  Histogram* step_seconds_ = nullptr;
  Gauge* loss_scale_ = nullptr;
  Counter* overflowed_steps_ = nullptr;
  Counter* late_gradients_ = nullptr;
  Gauge* running_jobs_ = nullptr;
  Counter* evaluated_samples_ = nullptr;
  Counter* evaluation_seconds_ = nullptr;
  Counter* cache_hits_ = nullptr;
  Counter* cache_misses_ = nullptr;
  ClientTelemetry client_;
  std::array<Counter*, kSharedFallbackCount> shared_fallbacks_{};

  mutable Mutex mu_;
  std::optional<Job> job_ ABSL_GUARDED_BY(mu_);
  WorkerProgress progress_ ABSL_GUARDED_BY(mu_);  // its latest
  // Last: it reads the rest.
  std::unique_ptr<MetricsRegistry::Collecting> collecting_;
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_JOB_WORKER_METRICS_H_
