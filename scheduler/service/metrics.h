#ifndef SYNCLINE_SCHEDULER_SERVICE_METRICS_H_
#define SYNCLINE_SCHEDULER_SERVICE_METRICS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/daemon/metrics.h"
#include "proto/cluster.pb.h"
#include "proto/job.pb.h"
#include "scheduler/core/cluster/cluster_core.h"
#include "scheduler/service/job_metrics.h"

namespace syncline::scheduler {

// Everything the scheduler exports. Thread-safe.
class SchedulerMetrics {
 public:
  // `registry` may be null: then nothing is exported. It outlives this.
  explicit SchedulerMetrics(MetricsRegistry* registry);

  // Sets the gauges; called once per tick.
  void Observe(const ClusterCore& core, absl::Time now)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Adds what is read when it is asked for: the jobs.
  void Collect(const ClusterCore& core, absl::Time now,
               MetricSamples* samples) const ABSL_LOCKS_EXCLUDED(mu_);
  void CountSubmit(bool accepted);
  void CountTransition(JobState state);
  // An event of the control loop was handled so long after it had come.
  void CountHandled(absl::Duration delay);
  void CountStoreError();
  void SetUnreadable(size_t records);

 private:
  std::map<TaskType, Gauge*> members_;
  Gauge* engaged_ = nullptr;
  Gauge* queued_ = nullptr;
  std::map<JobState, Gauge*> jobs_;
  Gauge* oldest_ = nullptr;
  Gauge* unreadable_ = nullptr;
  Counter* accepted_ = nullptr;
  Counter* refused_ = nullptr;
  Counter* sessions_ended_ = nullptr;
  std::map<ClusterCore::LossCause, Counter*> losses_;
  Histogram* loop_delay_ = nullptr;
  Counter* store_errors_ = nullptr;
  std::map<JobState, Counter*> transitions_;

  mutable Mutex mu_;
  JobMetrics job_metrics_ ABSL_GUARDED_BY(mu_);
  std::map<ClusterCore::LossCause, uint64_t> losses_told_ ABSL_GUARDED_BY(mu_);
  uint64_t lost_told_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_SERVICE_METRICS_H_
