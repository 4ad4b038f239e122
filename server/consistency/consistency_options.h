#ifndef SYNCLINE_SERVER_CONSISTENCY_CONSISTENCY_OPTIONS_H_
#define SYNCLINE_SERVER_CONSISTENCY_CONSISTENCY_OPTIONS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/regime/regime_schedule.h"

namespace syncline::ps {

// The consistency that a job asks for, its participants, and the blocks of one
// shard.
struct ConsistencyOptions {
  struct Worker {
    uint64_t incarnation = 0;
    std::string name;  // "worker:2 at 10.0.0.7:4000", for messages
  };
  // Mode and bound, by clock.
  RegimeSchedule regimes = {};
  // Gradients are scaled by their global norm, which other shards are part
  // of.
  bool clip_norm = false;
  // At clocks of SYNC: steps are scaled by norms of whole tensors (kLamb).
  bool trust_ratio = false;
  // At clocks of SYNC: where a gradient is not finite, no worker's gradient is
  // applied at its clock. The shards find out by its norm, or by a worker's
  // push, which is known before anything of the clock is applied.
  bool skip_non_finite = false;
  // Clocks end without some workers (SYNC_WITH_BACKUPS, SYNC_WITH_TIMEOUT):
  // once `needed` have closed one, or, with a timeout, all have, or `needed`
  // have and it has passed since the first close. Their regime is SYNC, and
  // stays. None: SYNC waits for all workers.
  struct Quorum {
    uint32_t needed = 1;                         // 1 to the number of workers
    std::optional<absl::Duration> timeout = {};  // none: SYNC_WITH_BACKUPS
    // SYNC of a job whose workers may be lost: a clock ends with all that are
    // there. `needed` is the number that the attempt begins with.
    bool loses_workers = false;
  };
  std::optional<Quorum> quorum = {};
  // Leased data (common/job/lease_rules.h). No regime is SYNC.
  bool leases = false;
  // With leases: this shard, shard 0, deals the clocks to the workers.
  bool deals_clocks = false;
  // Some rule of the job leads to SYNC while it runs. For plans of memory.
  bool comes_to_sync = false;
  std::vector<Worker> workers = {};  // by rank, at least one
  // Evaluates in the chief's stead: announces, reads and ends cuts, pushes
  // nothing, and has no clock. Its rank is the number of workers.
  std::optional<Worker> evaluator = {};
  uint32_t block_count = 0;  // of this shard, at least one
  // The last slot_count blocks are virtual slots of tables. They need no Init,
  // because rows come into being when they are first pushed.
  uint32_t slot_count = 0;
  std::string label = {};     // "job j-0001 on ps:0 at 10.0.0.5:4000"
  size_t parked_max = 65536;  // calls; above it they are refused

  // True if no gradient of a clock of SYNC is applied before the norm of the
  // clock's whole gradient is known.
  bool NeedsGradientNorm() const { return clip_norm || skip_non_finite; }
  // Workers, and the evaluator if there is one.
  size_t caller_count() const {
    return workers.size() + (evaluator.has_value() ? 1 : 0);
  }
  // OK if the process `incarnation` is the job's participant of this rank.
  // Errors: InvalidArgument: the job has no such rank; FailedPrecondition: it
  // is another process.
  absl::Status CheckCaller(uint32_t rank, uint64_t incarnation) const;
  // REQUIRES: rank < caller_count().
  const Worker& caller(uint32_t rank) const {
    return rank < workers.size() ? workers[rank] : *evaluator;
  }

  bool is_worker(uint32_t rank) const { return rank < workers.size(); }
  uint32_t dense_block_count() const { return block_count - slot_count; }
};

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_CONSISTENCY_CONSISTENCY_OPTIONS_H_
