#ifndef SYNCLINE_SCHEDULER_SERVICE_JOB_METRICS_H_
#define SYNCLINE_SCHEDULER_SERVICE_JOB_METRICS_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "common/daemon/metrics.h"

namespace syncline::scheduler {

class ClusterCore;
class Job;

// The series of the jobs that are not over: syncline_job_*. A job that is over
// has none. Pure: the core and `now` in, samples out. Thread-compatible.
class JobMetrics {
 public:
  // Notices which jobs have come forward since the last time; the better the
  // more often it is called.
  void Observe(const ClusterCore& core, absl::Time now);
  void Collect(const ClusterCore& core, absl::Time now,
               MetricSamples* samples) const;

 private:
  // The values that change when a job comes forward.
  struct Standing {
    int64_t clock = -1;
    int evaluations = 0;
    std::string waiting_for;
    // A long evaluation comes forward, too.
    absl::Time moved_within_clock = absl::InfinitePast();

    friend bool operator==(const Standing&, const Standing&) = default;
  };
  struct Seen {
    Standing standing;
    absl::Time since;
    std::pair<uint32_t, int64_t> checkpoint = {0, -1};
    absl::Time checkpoint_since = {};
  };
  static Standing StandingOf(const Job& job);
  // Attempt and clock of the newest checkpoint.
  static std::pair<uint32_t, int64_t> CheckpointOf(const Job& job);
  void CollectCheckpoint(const Job& job, const Seen& seen, absl::Time now,
                         MetricSamples* samples) const;
  void CollectProgress(const Job& job, absl::Time now,
                       MetricSamples* samples) const;

  std::map<std::string, Seen> running_;  // by job id
};

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_SERVICE_JOB_METRICS_H_
