#ifndef SYNCLINE_SCHEDULER_CORE_CLUSTER_METRICS_TARGETS_H_
#define SYNCLINE_SCHEDULER_CORE_CLUSTER_METRICS_TARGETS_H_

#include <string>

#include "absl/types/span.h"
#include "proto/cluster.pb.h"

namespace syncline::scheduler {

// The answer of Prometheus' HTTP service discovery: a JSON array with one
// target for each process that has an HTTP page, by the labels `task` ("ps"),
// `index` and `host`.
//   scheduler  host:port of the page of the process of the scheduler, which
//              becomes scheduler:0; empty: it has none.
//   members    live ones. One whose address is none is left out; of several
//              with the same address, which are one process, the first counts,
//              and it comes before the scheduler.
std::string MetricsTargetsJson(const std::string& scheduler,
                               absl::Span<const Member> members);

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_CORE_CLUSTER_METRICS_TARGETS_H_
