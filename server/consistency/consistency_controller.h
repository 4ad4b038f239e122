#ifndef SYNCLINE_SERVER_CONSISTENCY_CONSISTENCY_CONTROLLER_H_
#define SYNCLINE_SERVER_CONSISTENCY_CONSISTENCY_CONTROLLER_H_

#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "server/consistency/cut_schedule.h"
#include "server/consistency/push_ledger.h"
#include "server/consistency/reduction_round.h"
#include "server/consistency/shard_call.h"

namespace syncline::ps {

enum class ConsistencyMode { kSync, kBoundedStaleness, kAsync };

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
    // Answer `token` with the values of its pull.
    kRead,
    // Answer `token` with OK.
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
  uint64_t sample_count =
      0;  // what the sum is divided by; kBufferGradient: its own
  // Squared L2 norm of the mean gradient over all shards; negative where norms
  // are not clipped.
  double squared_norm = -1;
  // kRead: smallest and largest number of clocks applied, of active workers.
  int64_t min_clock = 0;
  int64_t max_clock = 0;
  absl::Status status = absl::OkStatus();
};
using ShardActions = std::vector<ShardAction>;

// Decides what happens to the pushes and pulls of one job on one shard: which
// gradients count, in which order they are applied, who may read when, and
// whom everybody is waiting for. The rules are in docs/consistency.md;
// README.md in this folder has the table of invariants and their tests.
//
// A pure state machine: events and `now` in, actions appended to `out`. Each
// call that is handed in ends in exactly one kRead, kAck or kFail, at the
// latest at the first OnTick after its deadline. Thread-compatible.
//
// Sources: Valiant, CACM 1990 (BSP); Ho et al., NIPS 2013 (SSP); Li et al.,
// OSDI 2014 (vector clocks per range); Chandy and Lamport, TOCS 1985 (cuts).
class ConsistencyController {
 public:
  struct Worker {
    uint64_t incarnation = 0;
    std::string name;  // "worker:2 at 10.0.0.7:4000", for messages
  };
  struct Options {
    ConsistencyMode mode = ConsistencyMode::kSync;
    int64_t staleness_bound = 0;  // kBoundedStaleness
    // Gradients are scaled by their global norm, which other shards are part
    // of.
    bool clip_norm = false;
    // kSync: steps are scaled by norms of whole tensors (kLamb).
    bool trust_ratio = false;
    // kSync: where a gradient is not finite nobody's is applied at its clock.
    // The shards find out by its norm, or by a worker's word, which is known
    // before anything of the clock is applied.
    bool skip_non_finite = false;
    std::vector<Worker> workers = {};  // by rank, at least one
    // Evaluates in the chief's stead: announces, reads and ends cuts, pushes
    // nothing, and has no clock. Its rank is the number of workers.
    std::optional<Worker> evaluator = {};
    uint32_t block_count = 0;  // of this shard, at least one
    // So many of them, the last ones, are virtual slots of tables: they need no
    // Init, because rows come into being when they are first pushed.
    uint32_t slot_count = 0;
    std::string label = {};     // "job j-0001 on ps:0 at 10.0.0.5:4000"
    size_t parked_max = 65536;  // calls; above it they are refused

    // True if no gradient of a clock is applied before the norm of the clock's
    // whole gradient is known.
    bool NeedsGradientNorm() const {
      return mode == ConsistencyMode::kSync && (clip_norm || skip_non_finite);
    }
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
  };

  explicit ConsistencyController(Options options);

  // Initial values, from the chief. Blocks that have some already keep them.
  void OnInit(CallToken token, uint32_t rank, uint64_t incarnation,
              absl::Span<const BlockIndex> blocks, absl::Time now,
              ShardActions* out);
  // A Push, Pull or PushPull. Facts are within the block map.
  void OnCall(ShardCall call, absl::Time now, ShardActions* out);
  // Errors: as BeginCut and EndCut in proto/parameter_server.proto.
  absl::Status OnBeginCut(uint32_t rank, uint64_t incarnation, uint64_t cut_id,
                          std::vector<int64_t> clocks, absl::Duration hold,
                          absl::Time now, ShardActions* out);
  absl::Status OnEndCut(uint32_t rank, uint64_t incarnation, uint64_t cut_id,
                        absl::Time now, ShardActions* out);
  // A worker says what it does instead of pushing; see ReportActivity in
  // proto/parameter_server.proto. The evaluator's counts where a cut holds the
  // workers: nobody else can move then.
  struct Activity {
    int64_t clock = -1;
    std::string what;
    uint64_t done = 0;
    uint64_t total = 0;
  };
  absl::Status OnActivity(uint32_t rank, uint64_t incarnation,
                          Activity activity, absl::Time now);
  // `round` is reduced, in answer to kSendNorms; `squared_norm` is kGradient's.
  // Late repeats are ignored.
  void OnReduced(const ReductionRound& round, double squared_norm,
                 absl::Time now, ShardActions* out);
  // The reduction fails for now, because of `why`; for messages.
  void OnReductionDelayed(const ReductionRound& round, const absl::Status& why);
  // The caller gave up. Ends the call if it is parked.
  void OnCancel(CallToken token, ShardActions* out);
  // This process was frozen for so long and heard nobody: whoever waits, and
  // every cut that is held, has that much more time. `now`: of this event;
  // moved_at() stays before it.
  void OnFrozen(absl::Duration frozen, absl::Time now);
  // Ends parked calls and held cuts that ran out of time.
  void OnTick(absl::Time now, ShardActions* out);
  // Ends all parked calls, and every later one, with `status`.
  void Close(const absl::Status& status, ShardActions* out);

  // OK if the caller is the chief; only the chief may initialise. Errors: as
  // OnInit fails its call.
  absl::Status CheckChief(uint32_t rank, uint64_t incarnation) const;

  // OK if this caller may read at the cut now: this shard has passed the cut,
  // and the cut is held. Errors: as a call's, FailedPrecondition.
  absl::Status CheckHeldCut(uint32_t rank, uint64_t incarnation,
                            uint64_t cut_id) const;

  // True if accepting the call's push would record a part of it that is not
  // recorded yet, and so bring gradients that need room. False for a call that
  // OnCall refuses whatever room there is, and for a repeat of an accepted
  // push.
  bool BringsGradients(const ShardCall& call) const;

  bool closed() const { return !closed_.ok(); }

  // For status and metrics.
  const PushLedger& worker(uint32_t rank) const { return workers_[rank]; }
  uint32_t worker_count() const {
    return static_cast<uint32_t>(workers_.size());
  }
  uint32_t initialised_count() const { return initialised_count_; }
  size_t parked_pushes() const { return parked_pushes_.size(); }
  size_t parked_pulls() const { return parked_pulls_.size(); }
  uint64_t duplicate_blocks() const { return duplicate_blocks_; }
  uint64_t abandoned_cuts() const { return abandoned_cuts_; }
  // kSync: clocks at which nothing was applied because of what was not finite.
  // Else: pushes without gradient, whose worker found it not to be finite.
  uint64_t skipped_clocks() const { return skipped_clocks_; }
  // kSync: pushes of this worker without gradient, for the same reason, at
  // clocks at which gradients of other workers were applied.
  uint64_t left_out_pushes(uint32_t rank) const {
    return left_out_pushes_[rank];
  }
  int64_t min_clock() const;  // over active workers
  int64_t max_clock() const;
  // When something last came forward: a gradient, an initial value, a cut, an
  // activity that counts. InfinitePast: never.
  absl::Time moved_at() const { return moved_at_; }
  // The worker's last report of what it does instead of its open clock, or the
  // evaluator's last report; empty: none.
  std::string ActivityText(uint32_t rank) const;

 private:
  enum class Wait { kReady, kParked };
  struct ParkedPull {
    ShardCall call;
    size_t ready_blocks = 0;  // blocks before it need no second look
  };

  // OK if the caller is the job's participant of this rank.
  absl::Status CheckCaller(uint32_t rank, uint64_t incarnation) const;
  // OK if the caller may announce and end cuts: the chief or the evaluator.
  absl::Status CheckCutter(uint32_t rank, uint64_t incarnation) const;
  absl::Status CheckPusher(const ShardCall& call) const;

  // Pushes.
  void StartPush(ShardCall call, ShardActions* out);
  bool MustPark(const ShardCall& call) const;
  void AcceptPush(ShardCall call, ShardActions* out);
  void Deliver(const ShardCall& call, ShardActions* out);
  void CloseClock(uint32_t rank, ShardActions* out);
  void RunParkedPushes(ShardActions* out);

  // The clock that SYNC is reducing.
  void StartSyncClock();
  void ResolveBlock(BlockIndex block, ShardActions* out);
  // True if a block must stay as it is until a reduction has ended.
  bool WaitsForReduction(BlockIndex block) const;
  void FinishSyncClock(ShardActions* out);
  void StartReduction(ReductionStage stage, ShardActions* out);
  void EndSyncClock();
  // One action for each block of [begin, end) that somebody had a gradient for.
  void ForDelivered(ShardAction::Kind kind, BlockIndex begin, BlockIndex end,
                    double squared_norm, ShardActions* out);

  // Pulls.
  void StartPull(ShardCall call, ShardActions* out);
  bool CanRead(ParkedPull* pull) const;
  bool CanReadBlock(BlockIndex block, uint32_t rank, int64_t clock) const;
  bool CanReadShard(uint32_t rank, int64_t clock) const;
  void Read(const ShardCall& call, ShardActions* out);
  void RunParkedPulls(ShardActions* out);

  // Does all that became possible.
  void Settle(absl::Time now, ShardActions* out);
  void PassCuts(absl::Time now);
  bool CutIsPassed(const CutSchedule::Cut& cut) const;
  absl::Status CheckCutClocks(absl::Span<const int64_t> clocks) const;
  absl::Status CheckCutSpread(absl::Span<const int64_t> clocks) const;

  // Messages.
  std::string WhyPushWaits(const ShardCall& call) const;
  std::string WhyPullWaits(const ShardCall& call) const;
  std::string ReductionText() const;
  std::string Missing(const std::function<bool(uint32_t rank)>& lacks) const;
  std::string Standing(uint32_t rank) const;
  // For messages: the participant that ends cuts, and its last report.
  std::string CutterText() const;
  absl::Status Overdue(const ShardCall& call, absl::string_view what,
                       const std::string& why) const;
  void Park(ShardCall call, bool as_push, ShardActions* out);

  uint32_t dense_block_count() const {
    return options_.block_count - options_.slot_count;
  }
  // A shard without dense blocks has had an Init all the same: it says how many
  // clocks there are.
  bool initialised() const {
    return had_init_ && initialised_count_ == dense_block_count();
  }
  bool sync() const { return options_.mode == ConsistencyMode::kSync; }
  bool is_worker(uint32_t rank) const { return rank < workers_.size(); }
  bool active(uint32_t rank) const {
    return is_worker(rank) && !workers_[rank].finished();
  }

  const Options options_;
  std::vector<PushLedger> workers_;  // by rank
  CutSchedule cuts_;
  std::vector<bool> block_initialised_;
  uint32_t initialised_count_ = 0;
  bool had_init_ = false;
  absl::Status closed_;

  // kSync. `sync_clock_` is the shard's version: all pushes of clocks below it
  // are applied. Only pushes of that clock are delivered, so no more than one
  // gradient per worker is held.
  int64_t sync_clock_ = 0;
  uint32_t sync_active_ = 0;             // workers that take part in it
  uint32_t sync_open_ = 0;               // those that have not closed it
  uint64_t sync_samples_ = 0;            // of those that have started it
  bool sync_skipped_ = false;            // a worker says that it is not finite
  std::vector<uint32_t> sync_left_out_;  // ranks of those that say so
  std::vector<uint32_t> expecting_;      // by block: workers still to come
  std::vector<bool> delivered_;          // by block: somebody had a gradient
  std::vector<int64_t> version_;         // by block: clocks applied
  std::optional<ReductionStage>
      reducing_;  // all have closed it; nothing: not yet
  std::string reduction_trouble_;

  std::list<ShardCall> parked_pushes_;  // in order of arrival
  std::list<ParkedPull> parked_pulls_;
  bool changed_ = false;  // parked calls may have become ready
  bool moved_ = false;    // since moved_at_ was set
  absl::Time moved_at_ = absl::InfinitePast();
  std::vector<Activity> activities_;  // by rank, the latest that said more
  uint64_t duplicate_blocks_ = 0;
  uint64_t abandoned_cuts_ = 0;
  uint64_t skipped_clocks_ = 0;
  std::vector<uint64_t> left_out_pushes_;  // by rank
};

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_CONSISTENCY_CONSISTENCY_CONTROLLER_H_
