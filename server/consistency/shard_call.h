#ifndef SYNCLINE_SERVER_CONSISTENCY_SHARD_CALL_H_
#define SYNCLINE_SERVER_CONSISTENCY_SHARD_CALL_H_

// The part of a call that the consistency controller needs: the facts of its
// header, checked against the block map, without its payload.

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "common/base/element_type.h"

namespace syncline::ps {

// Names a call to this shard; unique among those that have not ended.
using CallToken = uint64_t;

// Position of a block among the shard's own, 0..block_count-1.
using BlockIndex = uint32_t;

// The fields of PushHeader; see proto/parameter_server.proto.
struct PushFacts {
  int64_t clock = 0;
  // Leased data: the worker's next clock; it closes those between without a
  // gradient. 0: the clock after this.
  int64_t close_until = 0;
  uint64_t sample_count = 0;
  bool is_late = false;  // the gradient of an earlier clock
  uint32_t blocks_in_clock = 0;
  std::vector<BlockIndex> blocks;  // ascending
  bool finished = false;
  double squared_norm = 0;
  bool non_finite = false;

  // Samples that are left out, or late, for the first time.
  uint64_t new_samples() const { return is_late ? 0 : sample_count; }
  int64_t next_clock() const {
    return close_until > 0 ? close_until : clock + 1;
  }
};

// The fields of PullHeader.
struct PullFacts {
  int64_t clock = 0;
  std::vector<BlockIndex> blocks;  // ascending; empty: waits for the shard
  uint64_t cut_id = 0;
  ElementType type = ElementType::kFloat32;  // of the answer
  // True: the answer has the changes from the values of the clock before, which
  // the caller has.
  bool changes = false;
};

// A Push, a Pull, or both. At least one is set.
struct ShardCall {
  CallToken token = 0;
  uint32_t rank = 0;  // of the calling worker
  uint64_t incarnation = 0;
  // The chief calls, and makes the push's clock in the place of `rank`, which
  // is lost; `incarnation` is the chief's.
  bool for_lost = false;
  absl::Time deadline = absl::InfinitePast();
  std::optional<PushFacts> push = {};
  std::optional<PullFacts> pull = {};
};

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_CONSISTENCY_SHARD_CALL_H_
