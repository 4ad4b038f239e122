#ifndef SYNCLINE_SCHEDULER_CORE_CLUSTER_STATUS_JSON_H_
#define SYNCLINE_SCHEDULER_CORE_CLUSTER_STATUS_JSON_H_

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "proto/job.pb.h"
#include "proto/scheduler.pb.h"
#include "scheduler/core/job/job_progress.h"

// The data of the status page, as JSON. Texts are as users and daemons wrote
// them: the page sets them as text, never as HTML. Pure.

namespace syncline::scheduler {

// Of members; the page says how many more there are.
inline constexpr int kStatusMembersMax = 500;

struct StatusData {
  ClusterStatus cluster;
  std::vector<JobStatus> jobs;  // newest first
  int older_jobs = 0;           // that are not among them
  absl::Time now;
};
// {"version", "scheduler", "now", "jobs": [...], "older_jobs",
//  "members": [...], "more_members"}
std::string StatusJson(const StatusData& data);

struct JobData {
  JobStatus status;
  std::vector<JobProgressTracker::CurvePoint> curve;
  bool may_read_logs = false;
  absl::Time now;
};
// The fields that StatusJson has of the job, and "trace", "workers", "ps",
// "curve", "evaluations", "events", "artifacts", "logs"; of a running job
// "regime", how it trains at present: "BOUNDED_STALENESS, bound 4".
std::string JobJson(const JobData& data);

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_CORE_CLUSTER_STATUS_JSON_H_
