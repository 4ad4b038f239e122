#ifndef SYNCLINE_SERVER_SHARD_JOB_CONFIG_H_
#define SYNCLINE_SERVER_SHARD_JOB_CONFIG_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/job/job_pass.h"
#include "common/regime/regime_schedule.h"
#include "common/update/dense_updater.h"
#include "common/wire/block_map.h"
#include "proto/job.pb.h"
#include "server/consistency/consistency_controller.h"
#include "server/shard/shard_layout.h"
#include "server/tables/table_shard.h"

namespace syncline::ps {

// The part of a job's assignment that one shard needs.
struct JobConfig {
  std::string job_id;
  uint32_t shard = 0;
  JobPass pass;
  std::string label;  // "job j-0001 on ps:0 at 10.0.0.5:4000"
  BlockMap map;
  RegimeSchedule regimes;
  DenseUpdater::Options update;
  // By their index in JobAssignment.tables. memory_bytes and disk_bytes are
  // what the job asks for; 0: a share of the daemon's.
  struct Table {
    TableLayout layout;
    TableOptions options;
    uint64_t disk_bytes = 0;
  };
  std::vector<Table> tables;
  std::vector<std::string> tensor_names;
  // By tensor: of a running mean (DenseUpdater::MakeRunningMean).
  std::vector<std::optional<float>> momenta;
  ConsistencyController::Options controller;
  // The schedule ends with the job; how many clocks that is comes with Init.
  bool needs_total_clocks = false;
  // Workers fold statistics of their batches within a step (FoldStatistics).
  bool folds_statistics = false;
  // Unset: the job makes no checkpoints.
  std::optional<CheckpointSpec> checkpoint;
  // Of all shards, and in HYBRID of the workers, which come after them.
  uint32_t checkpoint_files = 1;
  int64_t start_clock = 0;  // JobAssignment's
  // How long a call may wait that does not say so itself.
  absl::Duration wait_max;
};

// Reads an assignment whose spec has every default filled in.
// Errors: InvalidArgument: a field that this version cannot obey, ReadRegimes'
// (common/regime/job_regimes.h), no worker, no attempt or secret, no such
// shard, a table without its spec, or the routing's.
absl::StatusOr<JobConfig> ReadJobConfig(const JobAssignment& assignment,
                                        uint32_t shard);

// The controller's options, as far as the spec and the regimes give them.
// Errors: InvalidArgument: a policy that is not built.
absl::StatusOr<ConsistencyController::Options> ReadController(
    const JobSpec& spec, const RegimeSchedule& regimes);

// The layout that messages about the job's blocks and tables on this shard must
// have.
ShardLayout LayoutOf(const JobConfig& config);

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_SHARD_JOB_CONFIG_H_
