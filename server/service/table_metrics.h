#ifndef SYNCLINE_SERVER_SERVICE_TABLE_METRICS_H_
#define SYNCLINE_SERVER_SERVICE_TABLE_METRICS_H_

#include <string>

#include "absl/types/span.h"
#include "common/daemon/metrics.h"
#include "proto/parameter_server.pb.h"

namespace syncline::ps {

// Adds the metrics of the embedding tables of one job on this ps,
// syncline_ps_table_* (common/daemon/metrics_catalogue.cc). `tables`: of all of
// the job's shards here; those of one name are added up, but of the hottest
// keys the hottest counts.
void CollectTableMetrics(const std::string& job_id,
                         absl::Span<const ShardStatus::Table> tables,
                         MetricSamples* samples);

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_SERVICE_TABLE_METRICS_H_
