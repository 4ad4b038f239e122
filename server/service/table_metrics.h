#ifndef SYNCLINE_SERVER_SERVICE_TABLE_METRICS_H_
#define SYNCLINE_SERVER_SERVICE_TABLE_METRICS_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "common/daemon/metrics.h"
#include "proto/parameter_server.pb.h"

namespace syncline::ps {

// Metrics of a ps about its embedding tables, each with a label `table`. Tables
// of one name in several open jobs are added up. Thread-compatible.
//
//   syncline_ps_table_rows{tier}                  memory, disk
//   syncline_ps_table_bytes{tier}                 rows, slots, index and filter
//                                                 in memory; files on disk
//   syncline_ps_table_limit_bytes{tier}           what those may be at most
//   syncline_ps_table_pulled_rows_total{from}     memory, disk, or absent: the
//                                                 initial value was answered
//   syncline_ps_table_pushed_rows_total           after merging of ranks
//   syncline_ps_table_refused_rows_total{reason}  pushed without effect: seen
//                                                 too rarely (sightings), by
//                                                 chance (probability), for
//                                                 want of room (budget)
//   syncline_ps_table_expired_rows_total{reason}  age, score
//   syncline_ps_table_spilled_rows_total          written from memory to disk
//   syncline_ps_table_hottest_pushes              of the most frequent key, at
//                                                 most; GetShardStatus has the
//                                                 keys
class TableMetrics {
 public:
  // Outlives this object.
  explicit TableMetrics(MetricsRegistry* registry) : registry_(registry) {}

  // The state of the job's table on one shard now. Counters of a job go on from
  // those of the jobs before it.
  void Set(const std::string& job_id, uint32_t shard,
           const ShardStatus::Table& table);
  // The same, but what it has counted so far was counted by an earlier shard.
  void GoOn(const std::string& job_id, uint32_t shard,
            const ShardStatus::Table& table);
  // The job is over: its tables hold nothing any more.
  void Forget(const std::string& job_id);

 private:
  void SetGauges(const std::string& table);
  void AddCounts(const ShardStatus::Table& before,
                 const ShardStatus::Table& now);

  MetricsRegistry* const registry_;
  // By job, then by table and shard: what was counted so far.
  using Part = std::pair<std::string, uint32_t>;
  std::map<std::string, std::map<Part, ShardStatus::Table>> last_;
};

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_SERVICE_TABLE_METRICS_H_
