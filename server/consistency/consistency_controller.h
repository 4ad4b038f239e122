#ifndef SYNCLINE_SERVER_CONSISTENCY_CONSISTENCY_CONTROLLER_H_
#define SYNCLINE_SERVER_CONSISTENCY_CONSISTENCY_CONTROLLER_H_

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/cuts/cut_use.h"
#include "common/update/reduction_round.h"
#include "server/consistency/caller_activities.h"
#include "server/consistency/consistency_options.h"
#include "server/consistency/controller_state.h"
#include "server/consistency/cut_schedule.h"
#include "server/consistency/leased_clocks.h"
#include "server/consistency/push_ledger.h"
#include "server/consistency/shard_action.h"
#include "server/consistency/shard_call.h"
#include "server/consistency/straggler_log.h"
#include "server/consistency/sync_clock.h"
#include "server/consistency/wait_reasons.h"

namespace syncline::ps {

// Decides what happens to the pushes and pulls of one job on one shard: which
// gradients count, in which order they are applied, which pulls are answered
// when, and which workers the others wait for. The rules are in
// docs/consistency.md; server/README.md has the table of invariants and their
// tests.
//
// A pure state machine: events and `now` in, actions appended to `out`. Each
// call that is handed in ends in exactly one kRead, kAck or kFail, at the
// latest at the first OnTick after its deadline. Thread-compatible.
//
// The mode of a clock is that of its regime. Bounds, ASYNC and bounded
// staleness change from one clock to the next without a halt. Where SYNC begins
// or ends, the workers wait for each other: no push of the clocks behind the
// border is accepted before all pushes of those below it are applied.
//
// Sources: Valiant, CACM 1990 (BSP); Ho et al., NIPS 2013 (SSP); Li et al.,
// OSDI 2014 (vector clocks per range); Chandy and Lamport, TOCS 1985 (cuts).
class ConsistencyController {
 public:
  using Worker = ConsistencyOptions::Worker;
  using Options = ConsistencyOptions;
  using Activity = CallerActivities::Activity;

  explicit ConsistencyController(Options options);

  // Initial values, from the chief. Blocks that have some already keep them.
  void OnInit(CallToken token, uint32_t rank, uint64_t incarnation,
              absl::Span<const BlockIndex> blocks, absl::Time now,
              ShardActions* out);
  // A Push, Pull or PushPull. Facts are within the block map.
  void OnCall(ShardCall call, absl::Time now, ShardActions* out);
  // Errors: as BeginCut and EndCut in proto/parameter_server.proto. `regime`:
  // of a cut for kRegime, which is at one clock, the regime's first. From its
  // announcement to its end no other regime is added, and it is certain that
  // this one can be.
  absl::Status OnBeginCut(uint32_t rank, uint64_t incarnation, uint64_t cut_id,
                          std::vector<int64_t> clocks, absl::Duration hold,
                          absl::Time now, ShardActions* out,
                          CutUse use = CutUse::kEvaluation,
                          std::optional<TrainingRegime> regime = {});
  // After OnBeginCut has refused a cut at its clocks or for now: by rank, the
  // smallest clocks at which this shard can be cut. Empty where the refusal has
  // another cause.
  absl::Span<const int64_t> smallest_cut() const { return smallest_cut_; }
  // `commit`: of a cut for kRegime that this shard has passed: the job trains
  // by its regime from here on. A repeat is OK. Errors: FailedPrecondition
  // also: the cut is not passed, or has been given up, so the regime is not in
  // force here.
  absl::Status OnEndCut(uint32_t rank, uint64_t incarnation, uint64_t cut_id,
                        absl::Time now, ShardActions* out, bool commit = false);
  // The job trains by `regime` from its first clock on. A pull that was
  // answered before keeps the bound that it was answered under. Errors: those
  // of RegimeSchedule::Add; a clock has begun once one of its pushes was
  // accepted. OutOfRange also: an announced cut could not be reached under
  // it.
  absl::Status OnRegime(const TrainingRegime& regime, absl::Time now,
                        ShardActions* out);
  // A worker says what it does instead of pushing, the evaluator what it does
  // at a cut; see CallerActivities.
  absl::Status OnActivity(uint32_t rank, uint64_t incarnation,
                          Activity activity, absl::Time now);
  // `round` is reduced, in answer to kSendNorms; `squared_norm` is kGradient's.
  // Late repeats are ignored.
  void OnReduced(const ReductionRound& round, double squared_norm,
                 absl::Time now, ShardActions* out);
  // A try to reduce has failed; the shell repeats it. `why` is for messages.
  void OnReductionDelayed(const ReductionRound& round, const absl::Status& why);
  // The set of `clock`, in answer to kSendCloses: the workers whose gradients
  // are applied, ascending. The others are left behind: the clock is closed for
  // them, and what they send for it is dropped. Late repeats are ignored.
  // Errors: Internal: it names a worker that has not closed the clock here, or
  // none; nothing has changed then. `removed`: all workers that have no part in
  // the clocks behind this one, ascending. Their calls fail from here on, with
  // FailedPrecondition.
  absl::Status OnQuorum(int64_t clock, absl::Span<const uint32_t> ranks,
                        absl::Time now, ShardActions* out,
                        absl::Span<const uint32_t> removed = {});
  // A try to learn the set has failed; the shell repeats it with OpenCloses.
  void OnQuorumDelayed(int64_t clock, const absl::Status& why) {
    sync_.OnSetDelayed(clock, why);
  }
  // The message of kSendCloses as of now; none: no set is awaited, or no worker
  // has closed the open clock.
  struct Closes {
    int64_t clock = 0;
    std::vector<uint32_t> ranks;
  };
  std::optional<Closes> OpenCloses() const;
  // Leased data: the worker, not the chief, is lost. Its calls fail from here
  // on, with FailedPrecondition, and nobody waits for it but cuts that are
  // behind its clock. What the shard has of it: PushLedger's cut_from and
  // pushed, and on shard 0 LeasedClocks::Of. A repeat changes nothing. Errors:
  // InvalidArgument: no such worker, or the chief; FailedPrecondition: the data
  // are not leased, or the attempt has not begun here.
  struct LostLeases {
    int64_t begun_until = 0;
    int64_t whole_until = 0;
    std::vector<int64_t> leased = {};
    // OnReturned's, once it has come.
    std::optional<std::vector<int64_t>> returned = {};
  };
  absl::StatusOr<LostLeases> OnWorkerLost(uint32_t rank, absl::Time now,
                                          ShardActions* out);
  // No shard has anything of these of the lost worker's clocks, ascending: the
  // chief makes them in its place (ShardCall::for_lost), and no others come. A
  // repeat changes nothing. Errors: FailedPrecondition: the worker is not lost;
  // InvalidArgument: the shard has something of one.
  absl::Status OnReturned(uint32_t rank, absl::Span<const int64_t> clocks,
                          absl::Time now, ShardActions* out);
  // The caller gave up. Ends the call if it is parked.
  void OnCancel(CallToken token, ShardActions* out);
  // This process was frozen for so long and received nothing: every parked call
  // and every held cut has that much more time. `now`: of this event;
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

  // OK while the cut is announced, passed or not. Errors: FailedPrecondition,
  // with what became of it; the status of Close.
  absl::Status CheckAnnounced(uint64_t cut_id) const;
  // OK while the cut is passed and held, for whoever runs in this process.
  // Errors: FailedPrecondition; the status of Close.
  absl::Status CheckHeldCut(uint64_t cut_id) const;

  // The state at a cut (controller_state.h). Errors: as CheckHeldCut.
  absl::StatusOr<ControllerState> Export(uint64_t cut_id) const;
  // OK before the first call. Errors: FailedPrecondition; the status of Close.
  absl::Status CheckFresh() const;
  // The job has `total_clocks` of them. Workers of a job that began with a
  // state and had finished below it, in a shorter job, go on; with leases each
  // has its first one from here on. REQUIRES: no push was accepted since
  // Import.
  void GoOnTo(int64_t total_clocks);
  // Goes on from a state that a controller of the same workers has exported,
  // as if this one had seen their calls. `now`: for moved_at. With
  // `begins_attempt` the job begins anew there: no push is accepted and no pull
  // answered before the chief's Init, which comes when the attempt's first cut
  // is announced; the state's cuts are left out.
  // Errors: as CheckFresh; InvalidArgument: other workers, clocks that no
  // controller of this mode has at a cut, cuts that nobody can announce.
  // Nothing has changed then.
  absl::Status Import(const ControllerState& state, bool begins_attempt,
                      absl::Time now);

  // True if accepting the call's push would record a part of it that is not
  // recorded yet, and so bring gradients that need room. False for a call that
  // OnCall refuses anyway, and for a repeat of an accepted push.
  bool BringsGradients(const ShardCall& call) const;

  bool closed() const { return !closed_.ok(); }
  // OK, or the status of Close.
  const absl::Status& CheckOpen() const { return closed_; }

  const RegimeSchedule& regimes() const { return options_.regimes; }
  // The cut at which a regime is to begin, announced and not ended; null: none.
  const CutSchedule::Cut* regime_cut() const { return cuts_.RegimeCut(); }
  // How many regimes a worker must know of before it makes step `clock`: one
  // more than there are where a cut is announced at which it changes.
  uint32_t RegimesAt(uint32_t rank, int64_t clock) const;

  // A worker that the others go on without, and their first clock without it.
  struct LostWorker {
    uint32_t rank = 0;
    int64_t first_clock = 0;
  };
  // In the order in which they were lost; null: none was. Values of a clock are
  // read when those are known whose first_clock is at most that clock.
  using LostWorkers = std::shared_ptr<const std::vector<LostWorker>>;
  const LostWorkers& lost_workers() const { return lost_; }

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
  // Clocks of SYNC at which nothing was applied because a gradient was not
  // finite. In the other modes: pushes without gradient, whose worker found it
  // not to be finite.
  uint64_t skipped_clocks() const {
    return sync_.skipped_clocks() + skipped_pushes_;
  }
  // SYNC: pushes of this worker without gradient, for the same reason, at
  // clocks at which gradients of other workers were applied.
  uint64_t left_out_pushes(uint32_t rank) const {
    return sync_.left_out_pushes(rank);
  }
  // Of a worker: how often a clock was applied without it, and the samples of
  // what it sent for these clocks, here.
  struct Behind {
    uint64_t clocks = 0;
    uint64_t samples = 0;
    int64_t applied = 0;   // 1 + the latest clock that was applied with it
    int64_t counted = -1;  // the latest clock whose samples are in `samples`
  };
  const Behind& behind(uint32_t rank) const { return behind_[rank]; }
  int64_t min_clock() const;  // over active workers
  int64_t max_clock() const;
  // For how long, and at how many clocks, the others have waited for this
  // worker alone.
  StragglerLog::Blame blame(uint32_t rank, absl::Time now) const {
    return stragglers_.Of(rank, now);
  }
  // So many clocks a worker may be ahead of the slowest one before it waits, in
  // the clock that the shard takes now; none: any number.
  std::optional<int64_t> staleness_bound() const {
    return options_.regimes.At(min_clock()).bound();
  }
  // When something last came forward: a gradient, an initial value, a cut, an
  // activity that counts. InfinitePast: never.
  absl::Time moved_at() const { return moved_at_; }
  // The worker's last report of what it does instead of its open clock, or the
  // evaluator's last report; empty: none.
  std::string ActivityText(uint32_t rank) const {
    return activities_.Text(rank, ledger(rank));
  }

 private:
  struct ParkedPull {
    ShardCall call;
    size_t ready_blocks = 0;  // blocks before it need no second look
  };

  // OK if the caller is the job's participant of this rank.
  absl::Status CheckCaller(uint32_t rank, uint64_t incarnation) const;
  // Likewise of a call, which the chief may make for a lost worker.
  absl::Status CheckCaller(const ShardCall& call) const;
  // OK if the caller may announce and end cuts: the chief or the evaluator.
  absl::Status CheckCutter(uint32_t rank, uint64_t incarnation) const;
  absl::Status CheckPusher(const ShardCall& call) const;
  // A routing cut that is held; null: none. It is passed when those before it
  // have ended. Other cuts stay as they are meanwhile, because the state that
  // moves has them so: an announcement is refused for now, lest cuts that are
  // partly announced wait for each other, and an end is to be repeated.
  const CutSchedule::Cut* MovingCut() const;
  absl::Status AnnounceCut(uint64_t cut_id, std::vector<int64_t> clocks,
                           absl::Duration hold, CutUse use,
                           std::optional<TrainingRegime> regime);

  // Changes of the regime (consistency_controller_regime.cc).
  // By rank: the smallest clocks, none below `clocks`, at which this shard can
  // be cut for this use.
  std::vector<int64_t> SmallestFor(CutUse use,
                                   absl::Span<const int64_t> clocks) const;
  // OK if a cut may be announced at which the regime changes to this one.
  // Errors: InvalidArgument: never; OutOfRange: not at these clocks;
  // FailedPrecondition: not now.
  absl::Status CheckRegimeCut(
      absl::Span<const int64_t> clocks,
      const std::optional<TrainingRegime>& regime) const;
  // OK if a cut for another use may be announced beside one for kRegime.
  // Errors: FailedPrecondition.
  absl::Status CheckBesideRegimeCut(absl::Span<const int64_t> clocks,
                                    CutUse use) const;
  absl::Status CommitRegime(uint64_t cut_id, absl::Time now, ShardActions* out);
  // A cut is announced at which the regime may change before this step.
  bool AwaitsRegime(uint32_t rank, int64_t clock) const;

  // Pushes.
  void StartPush(ShardCall call, ShardActions* out);
  bool MustPark(const ShardCall& call) const;
  void AcceptPush(ShardCall call, ShardActions* out);
  void Deliver(const ShardCall& call, ShardActions* out);
  void CloseClock(uint32_t rank, ShardActions* out);
  void RunParkedPushes(ShardActions* out);

  // The next clock of SYNC begins.
  void BeginSyncClock();

  // Leased data (consistency_controller_lease.cc).

  void BeginLeases(int64_t total_clocks);
  // It is not known yet which clocks of this lost worker come.
  bool AwaitsReturn(uint32_t rank) const;
  // The clocks of lost workers below `until` that the chief is to make.
  std::vector<ReturnedLease> ReturnedBelow(int64_t until) const;
  // The pull is the chief's, at a cut that waits for clocks which it is to
  // make.
  bool HasToMakeOthers(const ShardCall& call) const;
  // Takes the worker's calls out, and ends them with `status`.
  void EndCallsOf(uint32_t rank, const absl::Status& status, ShardActions* out);

  // A push of the worker's open clock.
  absl::Status CheckOpenPush(const ShardCall& call) const;

  // Clocks that end without some workers (consistency_controller_quorum.cc).
  // The worker's gradient of this closed clock is not applied, and will not be.
  bool IsDropped(uint32_t rank, int64_t clock) const;
  // So many samples of the worker are dropped with its gradient of `clock`.
  void CountDropped(uint32_t rank, int64_t clock, uint64_t samples);
  void LeaveBehind(uint32_t rank, int64_t clock, bool is_last);
  // Takes the worker out of the job from `clock` on, and ends its calls.
  void Lose(uint32_t rank, int64_t clock, ShardActions* out);
  // Null: the worker was not lost.
  const LostWorker* FindLost(uint32_t rank) const;
  // FailedPrecondition, with its name: what its calls are answered.
  absl::Status LostError(const LostWorker& lost) const;
  // The open clock is SYNC's, and ends without some workers.
  bool LeavesBehind() const { return in_sync_ && options_.quorum.has_value(); }
  // The shard takes the clocks from `clock` on, in the mode that they have.
  void BeginStretch(int64_t clock);
  // Begins the next stretch if this one is over: all its pushes are applied.
  void PassStretches();

  // Pulls.
  void StartPull(ShardCall call, ShardActions* out);
  bool CanRead(ParkedPull* pull) const;
  bool CanReadBlock(BlockIndex block, uint32_t rank, int64_t clock) const;
  bool CanReadShard(uint32_t rank, int64_t clock) const;
  void Read(const ShardCall& call, ShardActions* out);
  void RunParkedPulls(ShardActions* out);

  // The worker that alone holds others up: in SYNC the only one that has not
  // closed the clock, else the only one that keeps a parked pull from its
  // bound.
  std::optional<StragglerLog::Holder> HoldsUp() const;

  // Does all that became possible.
  void Settle(absl::Time now, ShardActions* out);
  void PassCuts(absl::Time now, ShardActions* out);
  bool CutIsPassed(const CutSchedule::Cut& cut) const;

  // The reasons why calls are parked; a view of this controller.
  WaitReasons Reasons() const;
  void Park(ShardCall call, bool as_push, ShardActions* out);

  // A shard without dense blocks needs an Init, too: the Init has the number of
  // clocks.
  bool initialised() const {
    return had_init_ && initialised_count_ == options_.dense_block_count();
  }
  // Why nothing can be read or pushed yet; empty: it can.
  std::string NotBegun() const;
  // Null for the evaluator.
  const PushLedger* ledger(uint32_t rank) const {
    return options_.is_worker(rank) ? &workers_[rank] : nullptr;
  }
  // Calls may wait for this worker.
  bool active(uint32_t rank) const {
    return options_.is_worker(rank) && !workers_[rank].finished() &&
           FindLost(rank) == nullptr;
  }

  Options options_;                  // const, but for its regimes
  std::vector<PushLedger> workers_;  // by rank
  CutSchedule cuts_;
  std::vector<int64_t> smallest_cut_;
  std::vector<bool> block_initialised_;
  uint32_t initialised_count_ = 0;
  bool had_init_ = false;
  absl::Status closed_;

  // The stretch of clocks that the shard takes now, up to where SYNC begins or
  // ends.
  bool in_sync_ = false;
  std::optional<LeasedClocks> leased_;  // where the shard deals clocks
  int64_t stretch_begin_ = 0;
  int64_t stretch_end_ = 0;
  SyncClock sync_;  // while in_sync_

  std::list<ShardCall> parked_pushes_;  // in order of arrival
  std::list<ParkedPull> parked_pulls_;
  bool changed_ = false;  // parked calls may have become ready
  bool moved_ = false;    // since moved_at_ was set
  absl::Time moved_at_ = absl::InfinitePast();
  CallerActivities activities_;
  StragglerLog stragglers_;
  std::vector<Behind> behind_;  // by rank
  LostWorkers lost_;
  std::map<uint32_t, LostLeases> lost_leases_;  // leased data: by rank
  uint64_t duplicate_blocks_ = 0;
  uint64_t abandoned_cuts_ = 0;
  uint64_t skipped_pushes_ = 0;
};

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_CONSISTENCY_CONSISTENCY_CONTROLLER_H_
