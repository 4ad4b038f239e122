#ifndef SYNCLINE_SERVER_CONSISTENCY_SHARD_ACTION_H_
#define SYNCLINE_SERVER_CONSISTENCY_SHARD_ACTION_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "common/cuts/cut_use.h"
#include "common/update/reduction_round.h"
#include "server/consistency/shard_call.h"

namespace syncline::ps {

// A clock of a lost worker that the chief makes in its place, and the worker's
// clock after it; 0: it is the last.
struct ReturnedLease {
  uint32_t rank = 0;
  int64_t clock = 0;
  int64_t next_clock = 0;

  friend bool operator==(const ReturnedLease&, const ReturnedLease&) = default;
};

// An instruction of the controller to its shell. Actions on one block take
// effect in the order of the list. That order alone guarantees consistency: the
// shell reports no completion.
struct ShardAction {
  enum class Kind {
    // Write the value of `block` from call `token`.
    kInit,
    // Buffer the gradient of `block` from call `token`, of `rank`.
    kBufferGradient,
    // Call `token` goes on as a pull; its payload has been used.
    kAccept,
    // Sum the buffered gradients of `block` in rank order, for a norm. The
    // buffered gradients may be released then, or summed again to be applied.
    kReduceGradients,
    // The first half of a LAMB step of `block` with its buffered gradients, for
    // the norms of its tensor.
    kComputeLambUpdate,
    // All blocks of `clock` have their norms: reduce those of `stage` over all
    // shards.
    kSendNorms,
    // One optimizer step of `block` with its buffered gradients, or the second
    // half of a LAMB step.
    kApply,
    // Release the buffered gradients of `block`.
    kDropGradients,
    // Release the buffered gradient of `block` that is `rank`'s: its clock is
    // applied without it.
    kDropGradientOf,
    // Tell the job's shard 0 which workers have closed `clock` here (`ranks`),
    // and let OnQuorum know the clock's set.
    kSendCloses,
    // A cut is passed whose purpose asks for it: take the shard's state, which
    // has all pushes below the cut, and none at or above it.
    kSnapshot,
    // Answer `token` with the values of its pull.
    kRead,
    // Answer `token` with OK. `dropped`: its push has no effect, because its
    // clock was applied without this worker.
    kAck,
    // Answer `token` with `status`.
    kFail,
  };
  Kind kind;
  CallToken token = 0;
  BlockIndex block = 0;
  uint32_t position = 0;  // of the block in the call's list
  uint32_t rank = 0;
  int64_t clock = 0;  // of the gradient, or of the pull
  ReductionStage stage = ReductionStage::kGradient;
  // The divisor of the sum; kBufferGradient: the samples of this push.
  uint64_t sample_count = 0;
  // Squared L2 norm of the mean gradient over all shards; negative where norms
  // are not clipped.
  double squared_norm = -1;
  // kRead: smallest and largest number of clocks applied, of active workers.
  int64_t min_clock = 0;
  int64_t max_clock = 0;
  // kRead: 1 + the latest of SYNC's clocks that the values have and at which
  // nothing was applied, because a gradient was not finite; 0: none.
  int64_t skipped_through = 0;
  // kRead, of the modes that leave workers behind: the open clock; 0: another
  // mode.
  int64_t open_clock = 0;
  // kRead: see PullResponseHeader.returned.
  std::vector<ReturnedLease> returned = {};
  bool dropped = false;              // kAck
  std::vector<uint32_t> ranks = {};  // kSendCloses: ascending
  absl::Status status = absl::OkStatus();
  // kSnapshot.
  uint64_t cut_id = 0;
  std::vector<int64_t> cut_clocks = {};  // by rank
  CutUse cut_use = CutUse::kEvaluation;
};
using ShardActions = std::vector<ShardAction>;

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_CONSISTENCY_SHARD_ACTION_H_
