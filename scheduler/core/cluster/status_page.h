#ifndef SYNCLINE_SCHEDULER_CORE_CLUSTER_STATUS_PAGE_H_
#define SYNCLINE_SCHEDULER_CORE_CLUSTER_STATUS_PAGE_H_

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "proto/job.pb.h"
#include "proto/scheduler.pb.h"
#include "scheduler/core/job/job_progress.h"

namespace syncline::scheduler {

// The data that the page shows. They are copies, so that nothing is locked
// while the page is written.
struct StatusPageData {
  struct JobView {
    JobStatus status;
    std::vector<JobProgressTracker::CurvePoint> curve;
  };
  ClusterStatus cluster;
  std::vector<JobView> jobs;  // newest first
  absl::Time now;
};

// One HTML document without scripts or outside references. Everything that came
// from a user or a daemon is escaped. Pure.
std::string RenderStatusPage(const StatusPageData& data);

// Loss over clocks as inline SVG; empty for fewer than two points.
std::string RenderLossCurve(
    const std::vector<JobProgressTracker::CurvePoint>& curve);

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_CORE_CLUSTER_STATUS_PAGE_H_
