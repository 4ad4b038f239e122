#ifndef SYNCLINE_SERVER_SHARD_SHARD_START_H_
#define SYNCLINE_SERVER_SHARD_SHARD_START_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "common/state/shard_state_stream.h"

namespace syncline::ps {

struct ShardImportOptions {
  // Blocks and slots of other shards are left out, as where the states of
  // another number of ps are read. Else they are errors.
  bool passes_over_others = false;
  // The counts of the shard and its tables are taken.
  bool with_counts = true;
  // A new attempt of the job begins with the state: nothing is read or pushed
  // before the chief's Init. Else the job goes on, with the state's cuts.
  bool begins_attempt = false;
  // Of blocks and rows the values alone, whatever optimizer, workers and clocks
  // the states are of: the optimizer's state, updates, pasts and records are
  // those of a job that begins. Implies begins_attempt.
  bool values_only = false;
};

// The state that a shard begins with: that of a former shard, or those of
// several at the same cut.
struct ShardStart {
  std::vector<std::unique_ptr<ShardStateSource>> states;
  ShardImportOptions options;
};

// Gives the start of each shard that a ps opens; asked once for each, in the
// order of their numbers. An error ends the opening.
using ShardStarts = std::function<absl::StatusOr<ShardStart>(uint32_t shard)>;

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_SHARD_SHARD_START_H_
