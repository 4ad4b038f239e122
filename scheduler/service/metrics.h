#ifndef SYNCLINE_SCHEDULER_SERVICE_METRICS_H_
#define SYNCLINE_SCHEDULER_SERVICE_METRICS_H_

#include <map>

#include "common/daemon/metrics.h"
#include "proto/cluster.pb.h"
#include "proto/job.pb.h"

namespace syncline::scheduler {

class ClusterCore;

// Everything the scheduler exports. Thread-safe.
class SchedulerMetrics {
 public:
  // `registry` may be null: then nothing is exported. It outlives this.
  explicit SchedulerMetrics(MetricsRegistry* registry);

  // Sets the gauges; called once per tick.
  void Observe(const ClusterCore& core);
  void CountSubmit(bool accepted);
  void CountTransition(JobState state);
  void CountLost(double amount);
  void CountStoreError();
  void SetUnreadable(size_t records);

 private:
  std::map<TaskType, Gauge*> members_;
  Gauge* engaged_ = nullptr;
  Gauge* queued_ = nullptr;
  Gauge* unreadable_ = nullptr;
  Counter* accepted_ = nullptr;
  Counter* refused_ = nullptr;
  Counter* sessions_ended_ = nullptr;
  Counter* store_errors_ = nullptr;
  std::map<JobState, Counter*> transitions_;
};

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_SERVICE_METRICS_H_
