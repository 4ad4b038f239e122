#ifndef SYNCLINE_SERVER_SHARD_JOB_SHARD_H_
#define SYNCLINE_SERVER_SHARD_JOB_SHARD_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/system/memory_claim.h"
#include "proto/parameter_server.pb.h"
#include "server/consistency/consistency_controller.h"
#include "server/consistency/reduction_round.h"
#include "server/dense/dense_shard.h"
#include "server/dense/lanes.h"
#include "server/memory/buffer_pool.h"
#include "server/memory/in_flight_budget.h"
#include "server/memory/shared_regions.h"
#include "server/shard/call_rows.h"
#include "server/shard/embedding_tables.h"
#include "server/shard/job_config.h"
#include "server/shard/lane_executor.h"
#include "server/shard/non_finite_log.h"
#include "server/shard/shard_layout.h"

namespace syncline::ps {

// One job on this ps: asks the controller, and carries out what it says in the
// lanes, in its order. Thread-safe. Callbacks run on any thread, exactly once,
// never under a lock.
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

  // A received payload, what it holds of the budget, and where the answer goes
  // if it may go into shared memory.
  struct Payload {
    std::shared_ptr<const FloatSource> values;  // null: none
    InFlightBudget::Hold hold;
    // Rows to push, whose values are those above, and rows to pull; null: none.
    std::shared_ptr<CallRows> pushed;
    std::shared_ptr<CallRows> pulled;
    // Of the list of blocks to pull, until it is answered.
    InFlightBudget::Hold pull_hold;
    AnswerArea answer;
    // It came over the network, where its sender has a window, and waits to
    // hear that this has left it.
    bool fills_window = false;
  };

  // Shared by the jobs of a ps. They outlive all calls.
  struct Resources {
    Lanes* lanes = nullptr;
    InFlightBudget* budget = nullptr;
    BufferPool* buffers = nullptr;
  };

  // Once a worker has left this many bytes of answers untaken, no more are read
  // for it, so nearly twice as many can be on their way. It is enough to keep a
  // network busy.
  static constexpr uint64_t kUnsentBytesMax = 4 << 20;

  using ScanDone =
      absl::AnyInvocable<void(absl::StatusOr<EmbeddingTables::Scanned>)>;

  JobShard(const JobConfig& config, const Resources& resources,
           AllReduceNorms all_reduce_norms,
           std::unique_ptr<EmbeddingTables> tables);

  const ShardLayout& layout() const { return layout_; }
  const JobConfig& config() const { return config_; }

  // DenseShard::MakeResident, before the first call.
  absl::Status MakeResident(const GoOnCheck& go_on) {
    return executor_.dense().MakeResident(go_on);
  }

  void Init(const Caller& caller, std::vector<BlockIndex> blocks,
            int64_t total_clocks, Payload payload, Done done);
  // Push, Pull or both; the token is set here and returned, for Cancel. `taken`
  // runs when the lanes have taken what is pushed and the pull must wait; it
  // may be at the same time as `done`, and for a call that need not wait, or
  // fails, it never is. A Push alone, and Init, are done when the lanes have
  // taken it.
  CallToken Call(ShardCall call, Payload payload, Taken taken, Done done);
  void Cancel(CallToken token);
  absl::Status BeginCut(const Caller& caller, uint64_t cut_id,
                        std::vector<int64_t> clocks, absl::Duration hold);
  absl::Status EndCut(const Caller& caller, uint64_t cut_id);
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
  // Its tables as they are. REQUIRES: closed, and the lanes have nothing of it.
  std::vector<ShardStatus::Table> FinalTables();

  ShardStatus::Job Status() const;
  // Since the last time each was asked.
  uint64_t NewDuplicateBlocks();
  uint64_t NewAbandonedCuts();
  uint64_t NewSkippedClocks();
  // Of JobSpec.non_finite, as in PsReport. 0 where the job fails instead.
  uint64_t SkippedClocks() const;
  uint64_t DroppedBlocks() const;
  NonFiniteLog& non_finite() { return executor_.non_finite(); }

 private:
  struct PendingCall {
    uint32_t rank = 0;
    absl::Time arrived;
    absl::Time deadline;
    Payload payload;
    std::vector<size_t> offsets;  // of the payload's blocks, in elements
    std::vector<BlockIndex> pulled;
    ElementType pulled_type = ElementType::kFloat32;
    std::shared_ptr<CallRows> pulled_rows;
    InFlightBudget::Hold pull_hold;
    AnswerArea answer;
    uint64_t parked_bytes = 0;  // its part of parked_bytes_
    bool may_read = false;      // waits for earlier answers alone
    Taken taken;
    Done done;
  };
  // A pull that may be answered, but waits until earlier answers to the same
  // worker are sent. Values are read after the wait, so that memory is bounded.
  struct WaitingRead {
    CallToken token = 0;
    int64_t clock = 0;  // of the pull
    int64_t min_clock = 0;
    int64_t max_clock = 0;
    absl::Duration waited;
  };
  struct Unsent {
    uint64_t bytes = 0;
    std::deque<WaitingRead> waiting;
  };
  struct Ended {
    Done done;
    absl::Status status;
  };
  // The effects of one event, before they are carried out.
  struct Outcome {
    std::vector<std::vector<LaneStep>> lanes;
    std::vector<int> here;            // lanes that this thread is to run
    std::vector<CallToken> accepted;  // pushes with a pull
    std::vector<Ended> ended;
  };

  // Of an Init by the chief.
  absl::Status SetTotalClocks(int64_t total_clocks)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Translates actions into steps of the lanes.
  void ApplyActions(const ShardActions& actions, Outcome* outcome)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ApplyAction(const ShardAction& action, Outcome* outcome)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The same for actions on a table's slot.
  void ApplySlotAction(const ShardAction& action, Outcome* outcome)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // A step of the rows' lane. Joins that of the slot before if rows lie one
  // behind the other.
  void AddRows(const ShardAction& action, std::vector<CallRowSpan> ranks,
               Outcome* outcome) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Reads into the caller's memory, which nobody has to wait for.
  void StartSharedRead(const WaitingRead& read, Outcome* outcome)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void StartReads(Unsent* unsent, Outcome* outcome)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void StartRead(const WaitingRead& read, Unsent* unsent, Outcome* outcome)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Has the lanes read the values into `result`, then ends `call`.
  void ReadInto(PendingCall call, PullValues result, const WaitingRead& read,
                Outcome* outcome) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  PullValues MakeResult(const PendingCall& call, const WaitingRead& read) const;
  size_t AnswerBytes(const PendingCall& call) const;
  // Ends the reads that `ends` says so of.
  void EndWaitingReads(
      const std::function<absl::Status(CallToken, const PendingCall&)>& ends,
      Outcome* outcome) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // An answer of so many bytes is out.
  void OnSent(uint32_t rank, uint64_t bytes) ABSL_LOCKS_EXCLUDED(mu_);
  void End(CallToken token, absl::Status status, Outcome* outcome)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // A push or Init is done with, and answered when the lanes have taken it: who
  // pushes faster than lanes work must wait, or what waits for the lanes would
  // grow without bound.
  void Acknowledge(CallToken token, Outcome* outcome)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ReleasePayload(PendingCall* call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void AddStep(LaneStep step, Outcome* outcome)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Runs `then` when all steps that `outcome` has for the lanes have run.
  void AfterSteps(Taken then, Outcome* outcome)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Runs `then` when all lanes, or those that have steps, have come to it.
  void AddCountdown(Taken then, bool all_lanes, Outcome* outcome)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Hands steps to the lanes; under the lock, so that lanes see events in the
  // controller's order.
  void SubmitSteps(Outcome* outcome) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The same, but leaves lanes that have nothing else to do to this thread,
  // which then calls RunCallbacks, if there is little to do.
  void SubmitFewSteps(Outcome* outcome) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool AreFew(const Outcome& outcome) const;
  Lanes::Task RunLater(int lane, Outcome* outcome);
  // Carries out the rest of an event's effects, which needs no lock.
  void RunCallbacks(Outcome* outcome) ABSL_LOCKS_EXCLUDED(mu_);
  // A pull's rows, in pieces of one lane each.
  struct LanePiece {
    int lane = 0;
    CallRowSpan rows;
  };
  std::vector<LanePiece> CutByLane(const std::shared_ptr<CallRows>& rows,
                                   absl::Span<const BlockIndex> blocks) const;
  uint64_t RowBytes(const CallRowSpan& range) const;
  // Of the pushes that a worker left out while others' gradients were applied.
  uint64_t LeftOutBlocks(uint32_t rank) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  size_t SlotOf(BlockIndex block) const {
    return block - layout_.counts().size();
  }
  // Bytes of the budget that a call holds: payload, list of blocks, keys of
  // rows.
  static uint64_t BytesHeld(const PendingCall& call);
  void CountParked(PendingCall* call, uint64_t bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Keeps half of the budget free of calls that must wait, for the pushes that
  // they wait for.
  void LimitParked(CallToken token, Outcome* outcome)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  void SendNorms(const ReductionRound& round) ABSL_LOCKS_EXCLUDED(mu_);
  void OnSums(const ReductionRound& round, Sums sums) ABSL_LOCKS_EXCLUDED(mu_);
  // Of the block's tensor, as last reduced.
  double TrustRatio(BlockIndex block) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Takes what is needed to carry out what follows the round; kGradient's norm.
  double UseSums(const ReductionRound& round, absl::Span<const double> sums)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const JobConfig config_;
  const ShardLayout layout_;
  Lanes* const lanes_;
  InFlightBudget* const budget_;
  BufferPool* const buffers_;
  const AllReduceNorms all_reduce_norms_;
  // The lanes' alone, but for the learning rate's end, which is set before the
  // first gradient reaches them, and norms, which stand still between rounds.
  LaneExecutor executor_;
  std::vector<int> slot_lanes_;  // by SlotOf
  std::atomic<int> maintaining_lanes_{0};

  mutable Mutex mu_;
  ConsistencyController controller_ ABSL_GUARDED_BY(mu_);
  CallToken next_token_ ABSL_GUARDED_BY(mu_) = 1;
  absl::flat_hash_map<CallToken, PendingCall> calls_ ABSL_GUARDED_BY(mu_);
  std::vector<Unsent> unsent_ ABSL_GUARDED_BY(mu_);  // by rank
  // The number of clocks that the first Init named.
  std::optional<int64_t> total_clocks_ ABSL_GUARDED_BY(mu_);
  uint64_t parked_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<uint64_t> buffered_bytes_ ABSL_GUARDED_BY(mu_);  // by block
  SlotGradients slots_ ABSL_GUARDED_BY(mu_);
  uint64_t gradient_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t told_duplicates_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t told_abandoned_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t told_skipped_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<double> trust_ratios_ ABSL_GUARDED_BY(mu_);  // by tensor
  std::optional<ReductionRound> unsent_norms_ ABSL_GUARDED_BY(mu_);
  absl::Time norm_retry_at_ ABSL_GUARDED_BY(mu_);
};

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_SHARD_JOB_SHARD_H_
