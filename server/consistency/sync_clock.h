#ifndef SYNCLINE_SERVER_CONSISTENCY_SYNC_CLOCK_H_
#define SYNCLINE_SERVER_CONSISTENCY_SYNC_CLOCK_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/update/reduction_round.h"
#include "server/consistency/consistency_options.h"
#include "server/consistency/push_ledger.h"
#include "server/consistency/shard_action.h"
#include "server/consistency/shard_call.h"

namespace syncline::ps {

// SYNC's open clock on one shard: which gradients of it are buffered, and when
// they are reduced, applied or dropped. Pure, thread-compatible.
//
// Where the mode leaves workers behind, nothing of a clock is applied before
// the set of its workers is fixed, for all shards: OnFixed takes the place of
// the last worker's close.
//
//   StartAt, where SYNC follows another mode
//   Begin -> gradients of all active workers -> every worker has closed it
//     -> the reductions that the job needs, over all shards -> Begin of the
//     next
//
// A block is applied as soon as all active workers have delivered it, unless
// the job needs a norm over more than the block: then its gradients stay
// buffered until the reduction has ended. No more than one gradient of each
// worker is buffered for a block, because only the open clock is delivered.
class SyncClock {
 public:
  explicit SyncClock(const ConsistencyOptions& options);

  // The open clock. It is the shard's version, too: all pushes of the clocks
  // below it are applied.
  int64_t clock() const { return clock_; }
  // SYNC begins with this clock: all pushes of the clocks below it are applied.
  // Begin follows. REQUIRES: not IsReducing(); `clock` is not below clock().
  void StartAt(int64_t clock);
  // The clock begins, and this many workers take part in it. `awaits_set`: it
  // ends with OnFixed.
  void Begin(uint32_t active_workers, bool awaits_set = false);

  // The state between two clocks: `clock` is the open one, and nothing of it
  // has arrived. Begin follows. `left_out_pushes`: by rank.
  void Import(int64_t clock, uint64_t skipped_clocks, int64_t skipped_through,
              std::vector<uint64_t> left_out_pushes);

  // Workers that take part in the clock and have not closed it.
  uint32_t open_workers() const { return open_; }

  // The worker has started the clock, with this push.
  void OnStarted(uint32_t rank, const PushFacts& push);
  // The gradient of a block is buffered, the first of its worker.
  void OnGradient(BlockIndex block, ShardActions* out);
  // The worker has closed the clock, with or without a gradient for each block.
  // True: the clock has ended, and the next one is to begin.
  // False where the clock awaits its set.
  bool OnClosed(uint32_t rank, const PushLedger& worker, ShardActions* out);
  // The clock is applied with these workers alone, by rank; the gradients of
  // the others are dropped. True: the clock has ended, and the next one is to
  // begin. REQUIRES: AwaitsSet(); the workers of the set have closed the clock.
  bool OnFixed(absl::Span<const PushLedger> workers,
               const std::vector<bool>& set, ShardActions* out);
  // The set of the open clock is not fixed yet.
  bool AwaitsSet() const { return awaits_set_; }
  // The workers that have closed it, ascending. REQUIRES: AwaitsSet().
  std::vector<uint32_t> ClosedRanks() const;

  // `round` is reduced, in answer to kSendNorms; `squared_norm` is kGradient's.
  // True: the clock has ended, and the next one is to begin. REQUIRES:
  // IsReducing(round).
  bool OnReduced(const ReductionRound& round, double squared_norm,
                 ShardActions* out);
  // A try to reduce has failed; the shell repeats it. `why` is for messages.
  void OnReductionDelayed(const ReductionRound& round, const absl::Status& why);
  // Likewise, to learn the clock's set.
  void OnSetDelayed(int64_t clock, const absl::Status& why);
  // Why it was delayed; empty: it was not.
  const std::string& set_trouble() const { return set_trouble_; }

  // True if the shards reduce this round now; any round. All workers have
  // closed the clock then, and its gradients are not applied yet.
  bool IsReducing(const ReductionRound& round) const {
    return reducing_ == round.stage && round.clock == clock_;
  }
  bool IsReducing() const { return reducing_.has_value(); }
  // For messages. REQUIRES: IsReducing().
  std::string ReductionText() const;

  // True if all gradients of the clocks below `clock` are applied: to the
  // block, to the shard. Where no worker is active there are none to come.
  bool HasApplied(BlockIndex block, int64_t clock) const {
    return versions_[block] >= clock || active_ == 0;
  }
  bool HasApplied(int64_t clock) const {
    return clock_ >= clock || active_ == 0;
  }
  // True if a block must stay as it is until a reduction has ended.
  bool WaitsForReduction(BlockIndex block) const;

  // Clocks at which nothing was applied, because a gradient was not finite.
  uint64_t skipped_clocks() const { return skipped_clocks_; }
  // 1 + the latest of these clocks that is below `clock`; 0: none. For `clock`
  // 1 + the open one it holds as soon as a block has that version.
  int64_t SkippedThrough(int64_t clock) const {
    return skipped_ && clock > clock_ ? clock_ + 1 : skipped_through_;
  }
  // Pushes of this worker without gradient, for the same reason, at clocks at
  // which gradients of other workers were applied.
  uint64_t left_out_pushes(uint32_t rank) const {
    return left_out_pushes_[rank];
  }

 private:
  // The worker's push counts.
  void TakePart(uint32_t rank, uint64_t samples, bool non_finite);
  void ResolveBlock(BlockIndex block, ShardActions* out);
  bool Finish(ShardActions* out);
  void StartReduction(ReductionStage stage, ShardActions* out);
  void End();
  // One action for each block of [begin, end) that a worker had a gradient for.
  void ForDelivered(ShardAction::Kind kind, BlockIndex begin, BlockIndex end,
                    double squared_norm, ShardActions* out) const;

  const bool needs_gradient_norm_;
  const bool trust_ratio_;
  const bool skip_non_finite_;
  const BlockIndex dense_blocks_;
  const BlockIndex blocks_;

  int64_t clock_ = 0;
  uint32_t active_ = 0;             // workers that take part in the clock
  uint32_t open_ = 0;               // those that have not closed it
  uint64_t samples_ = 0;            // of those that have started it
  bool skipped_ = false;            // a worker says that it is not finite
  std::vector<uint32_t> left_out_;  // ranks of those that say so
  bool awaits_set_ = false;
  std::string set_trouble_;
  // By rank, of a clock that awaits its set.
  struct Part {
    uint64_t samples = 0;
    bool non_finite = false;
    bool closed = false;
  };
  std::vector<Part> parts_;
  std::vector<uint32_t> expecting_;  // by block: workers still to come
  std::vector<bool> delivered_;      // by block: a worker had a gradient
  std::vector<int64_t> versions_;    // by block: clocks applied
  // All have closed it; nothing: not yet.
  std::optional<ReductionStage> reducing_;
  std::string reduction_trouble_;
  uint64_t skipped_clocks_ = 0;
  int64_t skipped_through_ = 0;            // 1 + the latest of these
  std::vector<uint64_t> left_out_pushes_;  // by rank
};

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_CONSISTENCY_SYNC_CLOCK_H_
