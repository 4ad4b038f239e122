#ifndef SYNCLINE_SERVER_SERVICE_JOB_METRICS_H_
#define SYNCLINE_SERVER_SERVICE_JOB_METRICS_H_

#include "absl/time/time.h"
#include "common/daemon/metrics.h"
#include "server/shard/job_registry.h"

namespace syncline::ps {

// Adds the series of the jobs that are open on this ps: how far their workers
// are, whom the others waited for, and their tables. `shards`: of all jobs,
// those of one job neighbours. Where a job has several shards here, the largest
// blame and spread count: they wait for the same workers.
void CollectJobMetrics(const JobRegistry::Shards& shards, absl::Time now,
                       MetricSamples* samples);

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_SERVICE_JOB_METRICS_H_
