#ifndef SYNCLINE_SERVER_SHARD_JOB_SHARD_H_
#define SYNCLINE_SERVER_SHARD_JOB_SHARD_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/base/mutex.h"
#include "common/cuts/cut_use.h"
#include "common/system/memory_claim.h"
#include "common/update/dense_updater.h"
#include "common/update/reduction_round.h"
#include "proto/parameter_server.pb.h"
#include "proto/scheduler.pb.h"
#include "server/consistency/consistency_controller.h"
#include "server/lanes/lanes.h"
#include "server/memory/buffer_pool.h"
#include "server/memory/in_flight_budget.h"
#include "server/shard/answer_window.h"
#include "server/shard/call_rows.h"
#include "server/shard/embedding_tables.h"
#include "server/shard/job_config.h"
#include "server/shard/lane_executor.h"
#include "server/shard/non_finite_log.h"
#include "server/shard/pending_calls.h"
#include "server/shard/quorum_agreement.h"
#include "server/shard/shard_layout.h"
#include "server/shard/shard_start.h"
#include "server/shard/snapshot_taker.h"
#include "server/shard/step_batch.h"

namespace syncline {
class ShardStateSink;
}  // namespace syncline

namespace syncline::ps {

struct ShardSelection;
class QuorumAgreement;
class ShardImporter;

// One job on this ps. It hands events to the consistency controller, and has
// the lanes carry out the controller's actions in their order. Thread-safe.
// Callbacks run on any thread, exactly once, never under a lock.
//
// Lock order: mu_, then a lane's queue.
class JobShard : public std::enable_shared_from_this<JobShard> {
 public:
  using Done = PullReading::Done;
  using Taken = absl::AnyInvocable<void()>;
  // Sums this shard's squared norms, as LaneExecutor::Norms has them, with the
  // other shards'; answers NormReducer's sums. Does not block.
  using Sums = absl::StatusOr<std::vector<double>>;
  using AllReduceNorms = std::function<void(const ReductionRound& round,
                                            std::vector<double> squared_norms,
                                            std::function<void(Sums)> done)>;

  using Payload = CallPayload;

  // Shared by the jobs of a ps. They outlive all calls.
  struct Resources {
    Lanes* lanes = nullptr;
    InFlightBudget* budget = nullptr;
    BufferPool* buffers = nullptr;
  };

  using ScanDone =
      absl::AnyInvocable<void(absl::StatusOr<EmbeddingTables::Scanned>)>;

  JobShard(const JobConfig& config, const Resources& resources,
           AllReduceNorms all_reduce_norms,
           std::unique_ptr<EmbeddingTables> tables);

  const ShardLayout& layout() const { return layout_; }
  const JobConfig& config() const { return config_; }

  // DenseUpdater::MakeResident, before the first call.
  absl::Status MakeResident(const GoOnCheck& go_on) {
    return executor_.MakeResident(go_on);
  }

  // Fixes with which workers a clock is applied. Before the first call, where
  // the job's mode leaves workers behind. Closed with the shard.
  void UseQuorum(std::shared_ptr<QuorumAgreement> quorum) {
    quorum_ = std::move(quorum);
  }
  // Has the state taken at cuts that ask for a snapshot. Before the first call.
  void UseSnapshotTaker(std::shared_ptr<SnapshotTaker> taker) {
    snapshots_ = std::move(taker);
    executor_.UseSnapshotTaker(snapshots_.get());
  }
  // Its blocks and rows, of which a lane may touch its own.
  LaneExecutor* executor() { return &executor_; }

  void Init(const Caller& caller, std::vector<BlockIndex> blocks,
            int64_t total_clocks, Payload payload, Done done);
  // Push, Pull or both; the token is set here and returned, for Cancel. `taken`
  // runs when the lanes have taken what is pushed and the pull must wait; it
  // may be at the same time as `done`, and for a call that need not wait, or
  // fails, it never is. A Push alone, and Init, are done when the lanes have
  // taken it.
  CallToken Call(ShardCall call, Payload payload, Taken taken, Done done);
  void Cancel(CallToken token);
  // Errors: as OnBeginCut's, with the detail of common/wire/smallest_cut.h
  // where later clocks may be accepted; Unimplemented: the cut is to take a
  // snapshot, and there is no SnapshotTaker;
  // SnapshotTaker::CheckAnnouncement's, with the same detail.
  absl::Status BeginCut(const Caller& caller, uint64_t cut_id,
                        std::vector<int64_t> clocks, absl::Duration hold,
                        CutUse use, std::optional<TrainingRegime> regime = {});
  // `commit`: as OnEndCut.
  absl::Status EndCut(const Caller& caller, uint64_t cut_id,
                      bool commit = false);
  // The regimes that are in force or to come, by first clock. Errors: as the
  // controller's CheckCaller.
  absl::StatusOr<RegimeSchedule> Regimes(const Caller& caller) const;
  // Writes the shard's state at a cut that is passed and held
  // (proto/shard_state.proto). Blocks until all is written: not from a lane.
  // Pieces are copied in their lanes and written from this thread, so pulls go
  // on. SnapshotTaker::OnSnapshotDone says when it may begin.
  // Errors: FailedPrecondition: the cut is not held, or no longer; the sink's;
  // those of the tables' disk; as ShardExporter::Export.
  absl::Status Export(uint64_t cut_id, const ShardSelection& selection,
                      ShardStateSink* sink);

  // Where the job's strategy changes (server/shard/shard_transfer.h).

  // The cut at which a regime is to begin, if one is announced. Errors: as
  // Regimes.
  struct Proposal {
    uint64_t cut_id = 0;
    TrainingRegime regime;
  };
  absl::StatusOr<std::optional<Proposal>> ProposedRegime(
      const Caller& caller) const;
  // The controller's state at a cut that is passed and held, and the clocks of
  // the job. Errors: as Export.
  absl::StatusOr<ControllerState> StateAtCut(uint64_t cut_id,
                                             int64_t* total_clocks) const;
  // Runs `task` in the lane of a dense block while the cut is held, or while
  // the state is away, and waits for it. Errors: CheckHeldCut's, CheckAway's;
  // the task's.
  absl::Status RunAtCut(uint64_t cut_id, int lane,
                        absl::FunctionRef<absl::Status()> task)
      ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status RunWhileAway(int lane, absl::FunctionRef<absl::Status()> task)
      ABSL_LOCKS_EXCLUDED(mu_);
  const Lanes& lanes() const { return *lanes_; }
  SnapshotTaker* snapshots() const { return snapshots_.get(); }
  // OK while the workers have the state: the regime is one without ps. Errors:
  // FailedPrecondition; the status of Close.
  absl::Status CheckAway() const ABSL_LOCKS_EXCLUDED(mu_);
  // Goes on with the state that the blocks have now, and what else is said of
  // it, by `regimes`, of which the last one has ps. Errors: CheckAway's;
  // InvalidArgument: a state that cannot be. Nothing has changed then.
  struct TakenState {
    ControllerState controller;
    int64_t total_clocks = 0;
    std::vector<uint64_t> non_finite;  // by rank
    uint64_t non_finite_total = 0;
  };
  absl::Status TakeBack(const TakenState& state, const RegimeSchedule& regimes)
      ABSL_LOCKS_EXCLUDED(mu_);

  // Begins with the state of one shard, or of several at the same cut. Before
  // the first call, instead of Init. Blocks until all is read.
  // Errors: as ShardImporter; FailedPrecondition: a call has come. After an
  // error of what is read the shard is closed with that error.
  absl::Status Import(const ShardStart& start);
  // Leased data: the controller's OnWorkerLost and OnReturned.
  absl::StatusOr<ConsistencyController::LostLeases> LoseWorker(uint32_t rank)
      ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status ReturnLeases(uint32_t rank, absl::Span<const int64_t> clocks)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Rows of a table at a cut that is passed and held, see ScanTable in
  // proto/parameter_server.proto.
  void Scan(const Caller& caller, uint32_t table, uint64_t cut_id,
            const std::string& cursor, ScanDone done);
  absl::Status ReportActivity(const Caller& caller,
                              ConsistencyController::Activity activity);
  // Ends what is overdue, and looks after a norm that has not come.
  // `frozen`: for how long this process did not run since the last tick.
  void Tick(absl::Time now, absl::Duration frozen = absl::ZeroDuration());
  // Once a second: lets time pass for the tables' rows.
  void MaintainTables(absl::Time now);
  // Ends parked calls and all later ones with `status`.
  void Close(const absl::Status& status);
  // OK while the cut is announced, passed or not. Errors: FailedPrecondition,
  // which says if it was abandoned; the status of Close.
  absl::Status CheckAnnounced(uint64_t cut_id) const;
  // OK while the shard has passed the cut and holds it. Errors:
  // FailedPrecondition; the status of Close.
  absl::Status CheckHeldCut(uint64_t cut_id) const;
  // Close in one step with CheckHeldCut: the state that was exported at the cut
  // has all that was ever acknowledged. Errors: CheckHeldCut's; nothing has
  // changed then.
  absl::Status CloseAtCut(uint64_t cut_id, const absl::Status& status);
  // Its tables as they are. REQUIRES: closed, and the lanes have nothing of it.
  std::vector<ShardStatus::Table> FinalTables();

  ShardStatus::Job Status() const;
  // How far its workers are, and for whom the others have waited.
  struct Standing {
    int64_t min_clock = 0;  // over active workers
    int64_t max_clock = 0;
    std::optional<int64_t> staleness_bound;             // none: ASYNC
    std::vector<StragglerLog::Blame> blames;            // by rank
    std::vector<ConsistencyController::Behind> behind;  // likewise
  };
  Standing StandingAt(absl::Time now) const;
  // True if clocks are, were or will be SYNC's or its kin's.
  bool HasBlame() const;
  // By rank, for whom the others have waited, and who was left behind. Nothing
  // where HasBlame is false.
  void AddBlame(absl::Time now, PsReport* report) const;
  // Since the last time each was asked.
  uint64_t NewDuplicateBlocks();
  uint64_t NewAbandonedCuts();
  uint64_t NewSkippedClocks();
  // Of JobSpec.non_finite, as in PsReport. 0 where the job fails instead.
  uint64_t SkippedClocks() const;
  uint64_t DroppedBlocks() const;
  NonFiniteLog& non_finite() { return executor_.non_finite(); }

 private:
  uint64_t DroppedBlocksLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Runs `task` in a lane, behind the steps that it was given, and waits for
  // it, unless `check`, under the lock, is not OK. Errors: its, the task's.
  absl::Status RunInLane(absl::FunctionRef<absl::Status()> check, int lane,
                         absl::FunctionRef<absl::Status()> task)
      ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status CheckAwayLocked() const ABSL_SHARED_LOCKS_REQUIRED(mu_);
  // Why a call cannot be taken: it is of a clock whose state is away.
  absl::Status CheckHere(const ShardCall& call) const
      ABSL_SHARED_LOCKS_REQUIRED(mu_);
  void CloseLocked(const absl::Status& status, StepBatch* batch)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status GoOnFrom(const ShardImporter& importer, bool begins_attempt,
                        absl::Time now) ABSL_LOCKS_EXCLUDED(mu_);
  // Of an Init by the chief.
  absl::Status SetTotalClocks(int64_t total_clocks)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Adds the call to calls_.
  CallToken AddCall(const ShardCall& call, Payload payload, Taken taken,
                    Done done) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // From actions to steps (job_shard_actions.cc).

  void ApplyActions(const ShardActions& actions, StepBatch* batch)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ApplyAction(const ShardAction& action, StepBatch* batch)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // An action that brings the values of a dense block, or a gradient for them.
  void StoreBlock(const ShardAction& action, StepBatch* batch)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // An action that needs the buffered gradients of a dense block.
  void UseGradients(const ShardAction& action, StepBatch* batch)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // One worker's gradient of a dense block does not count.
  void DropGradientOf(const ShardAction& action, StepBatch* batch)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Every lane takes its part of the state, between its steps.
  void TakeSnapshot(const ShardAction& action, StepBatch* batch)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // An action on the rows of a table's slot.
  void ApplySlotAction(const ShardAction& action, StepBatch* batch)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  size_t SlotOf(BlockIndex block) const {
    return block - layout_.counts().size();
  }
  // Of an element of that clock's gradients, and of rows with their keys.
  size_t WireBytesAt(int64_t clock) const;
  uint64_t RowBytes(const CallRowSpan& range, int64_t clock) const;
  // Of the block's tensor, as last reduced.
  double TrustRatio(BlockIndex block) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Hands steps to the lanes; under the lock, so that lanes see events in the
  // controller's order.
  void SubmitSteps(StepBatch* batch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The same, but if there is little to do, lanes that have nothing else to do
  // are left to this thread: it calls Lanes::RunHere for each lane returned,
  // outside the lock.
  std::vector<int> SubmitFewSteps(StepBatch* batch)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool AreFew(const StepBatch& batch) const;
  Lanes::Task RunLater(int lane, StepBatch* batch);

  // Answers (job_shard_answers.cc).

  // The mode lets the call's pull be answered.
  void AllowRead(const ShardAction& action, StepBatch* batch)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Reads into the caller's shared memory, without waiting for earlier answers.
  void StartSharedRead(const WaitingRead& read, StepBatch* batch)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void StartReads(AnswerWindow* window, StepBatch* batch)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void StartRead(const WaitingRead& read, AnswerWindow* window,
                 StepBatch* batch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Has the lanes read the values into `result`, then ends `call`.
  void ReadInto(PendingCall call, PullValues result, const WaitingRead& read,
                StepBatch* batch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  PullValues MakeResult(const PendingCall& call, const WaitingRead& read) const;
  ValueForm FormOf(const PullFacts& pull) const;
  size_t AnswerBytes(const PendingCall& call) const;
  // A pull's rows, in pieces of one lane each.
  struct LanePiece {
    int lane = 0;
    CallRowSpan rows;
  };
  std::vector<LanePiece> CutByLane(const std::shared_ptr<CallRows>& rows,
                                   absl::Span<const BlockIndex> blocks) const;
  // Ends the reads that wait and for which `ends` is not OK.
  void EndWaitingReads(
      absl::FunctionRef<absl::Status(CallToken, const PendingCall&)> ends,
      StepBatch* batch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // An answer of so many bytes is out.
  void OnSent(uint32_t rank, uint64_t bytes) ABSL_LOCKS_EXCLUDED(mu_);
  void End(CallToken token, absl::Status status, StepBatch* batch)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Answers a push or Init when the lanes have taken it. A worker that pushes
  // faster than lanes work must wait: the lanes' queues would grow without
  // bound otherwise.
  // `dropped`: the answer says that the push has no effect.
  void Acknowledge(CallToken token, bool dropped, StepBatch* batch)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Refuses the call if it must wait and calls that wait hold more than half of
  // the budget. The other half is for the pushes that they wait for.
  void LimitParked(CallToken token, StepBatch* batch)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Norms.

  void SendNorms(const ReductionRound& round) ABSL_LOCKS_EXCLUDED(mu_);
  void OnSums(const ReductionRound& round, Sums sums) ABSL_LOCKS_EXCLUDED(mu_);
  // Stores the sums that the actions after the round need. Returns the squared
  // norm of the gradient, or -1 after kTrust.
  double UseSums(const ReductionRound& round, absl::Span<const double> sums)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Sets of clocks (job_shard_quorum.cc).

  // Tells shard 0 who has closed the clock, and applies the set that it fixes.
  // `overdue`: QuorumAgreement::OnCloses's.
  void SendCloses(ConsistencyController::Closes closes, bool overdue = false)
      ABSL_LOCKS_EXCLUDED(mu_);
  void OnQuorum(int64_t clock, const QuorumAgreement::Set& set)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Ticks: does again what has failed, and says what is overdue.
  void TickQuorum(absl::Time now, absl::Duration frozen)
      ABSL_LOCKS_EXCLUDED(mu_);

  // Blocks of the pushes that a worker left out while gradients of other
  // workers were applied.
  uint64_t LeftOutBlocks(uint32_t rank) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const JobConfig config_;
  ShardLayout layout_;
  Lanes* const lanes_;  // gone after Close, when sums may still come
  const int lane_count_;
  InFlightBudget* const budget_;
  BufferPool* const buffers_;
  const AllReduceNorms all_reduce_norms_;
  std::shared_ptr<SnapshotTaker> snapshots_;  // null: no snapshots
  std::shared_ptr<QuorumAgreement> quorum_;  // null: all workers are waited for
  // The lanes' alone, but for the learning rate's end, which is set before the
  // first gradient reaches them, and norms, which stand still between rounds.
  LaneExecutor executor_;
  std::vector<int> slot_lanes_;  // by SlotOf
  std::atomic<int> maintaining_lanes_{0};

  mutable Mutex mu_;
  ConsistencyController controller_ ABSL_GUARDED_BY(mu_);
  PendingCalls calls_ ABSL_GUARDED_BY(mu_);
  std::vector<AnswerWindow> windows_ ABSL_GUARDED_BY(mu_);  // by rank
  // The number of clocks that the first Init named.
  // The last cut for a checkpoint that was passed.
  struct PassedCut {
    uint64_t cut_id = 0;               // 0: there was none
    std::vector<int64_t> clocks = {};  // by rank

    // Its id if `rank`, which may be no worker, is at it at `clock`; else 0.
    uint64_t CutAt(uint32_t rank, int64_t clock) const {
      return rank < clocks.size() && clocks[rank] == clock ? cut_id : 0;
    }
  };
  PassedCut passed_ ABSL_GUARDED_BY(mu_);
  std::optional<int64_t> total_clocks_ ABSL_GUARDED_BY(mu_);
  // From this clock on the workers have the state.
  std::optional<int64_t> away_since_ ABSL_GUARDED_BY(mu_);
  // Of gradients, by dense block.
  std::vector<uint64_t> buffered_bytes_ ABSL_GUARDED_BY(mu_);
  SlotGradients slots_ ABSL_GUARDED_BY(mu_);
  uint64_t gradient_bytes_ ABSL_GUARDED_BY(mu_) = 0;  // of all, slots too
  uint64_t told_duplicates_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t told_abandoned_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t told_skipped_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<double> trust_ratios_ ABSL_GUARDED_BY(mu_);  // by tensor
  std::optional<ReductionRound> unsent_norms_ ABSL_GUARDED_BY(mu_);
  absl::Time norm_retry_at_ ABSL_GUARDED_BY(mu_);
  absl::Time quorum_retry_at_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();
  // The closes that shard 0 was last told of because their clock is overdue.
  ConsistencyController::Closes overdue_ ABSL_GUARDED_BY(mu_);
};

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_SHARD_JOB_SHARD_H_
