#ifndef SYNCLINE_WORKER_EXCHANGE_PARAMETER_EXCHANGE_H_
#define SYNCLINE_WORKER_EXCHANGE_PARAMETER_EXCHANGE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/cuts/cut_use.h"
#include "common/regime/regime_schedule.h"
#include "worker/compute/parameter_gatherer.h"
#include "worker/embedding/row_batch.h"
#include "worker/exchange/checkpoint_writing.h"

namespace syncline::worker {

// One rank's way to the parameters that all ranks of a job train: hands over
// its gradients while it computes them, and has the values that its next step
// reads. Where parameters are held, and by what way gradients are added up, is
// the implementation's; PsClient is one. A rank that evaluates reads values and
// makes no step.
//
// Memory. Values come straight into the tensors and row batches of the caller,
// gradients are taken straight from them. Both belong to the caller, who must
// not touch them until Wait has returned: the value and gradient of a tensor
// from OnGradientReady on, the gradients of the step's rows from EndBackward
// on, the rows that are wanted for the next step from PullEarly or EndBackward
// on.
//
// Threads. One thread at a time makes calls; only Cancel may come from any
// thread at any time. The calls may move to another thread if that thread
// starts after the last call and is joined before the next one: FileGrowth's
// thread calls ReportActivity while the training thread writes files and makes
// no call.
//
// Errors end the job, but for those of BeginCut: the first is kept, and every
// later call returns it. It names the member that failed or is missing, the job
// and the clock.
//   FailedPrecondition, InvalidArgument, Aborted   a member refused the call
//   DeadlineExceeded   no rank moved for the step timeout; names the missing
//   Unavailable        a member was out of reach for that long
//   Cancelled          by Cancel
class ParameterExchange {
 public:
  virtual ~ParameterExchange() = default;

  // Ends all calls, of now and later. Thread-safe.
  virtual void Cancel(const absl::Status& reason) = 0;

  // --- The state between steps. All of these block. ---

  // Makes the parameters' current values the job's initial ones, and says how
  // many steps the job will have. The chief's, once, before any rank's step.
  // Rows of tables need no values.
  virtual absl::Status Init(int64_t total_clocks) = 0;
  // Overwrites all parameters with the values for step `clock`, once the
  // consistency mode allows that.
  virtual absl::Status Pull(int64_t clock) = 0;
  // Fills in what is wanted of `rows` (by table), as of step `clock`, or of an
  // announced cut if `cut_id` is not 0. Creates no row.
  virtual absl::Status PullRows(int64_t clock, uint64_t cut_id,
                                absl::Span<RowBatch* const> rows) = 0;
  // Tells the other ranks that this one is busy with something that takes
  // longer than a step: `done` of `total` of `what`, before it makes step
  // `clock`. Ranks that wait for it go on waiting for the step timeout after
  // each call that says more than the one before. Blocks for a round trip.
  virtual absl::Status ReportActivity(int64_t clock, absl::string_view what,
                                      uint64_t done, uint64_t total) = 0;

  // --- Cuts: the state at which every rank has made the same steps. All of
  // these block. ---

  struct Cut {
    // Non-zero, of this job alone; see common/cuts/cut_id.h.
    uint64_t id = 0;
    CutUse use = CutUse::kEvaluation;
    // By rank: each has made the steps before its clock, and no other. At most
    // so far apart as the consistency mode allows. A clock that a rank has
    // passed is raised; zeros: as soon as possible.
    std::vector<int64_t> clocks = {};
    // How long the ranks are held at most; none: four times the step timeout.
    std::optional<absl::Duration> hold = {};
    // CutUse::kRegime: what the job is to train by from the cut on, which is at
    // one clock of all ranks, the regime's first. `clocks` are raised to it.
    std::optional<TrainingRegime> regime = {};
  };
  // Announces a cut; returns the clocks that were agreed on. From there on no
  // rank's next step counts until EndCut. A rank that makes steps must make
  // those before its own clock, or nobody reaches the cut. Blocks for a round
  // trip, for some more where the cut is raised. Errors that end the cut and
  // not the job, DeadlineExceeded and what a member answers: the cut is not to
  // be had, and holds no rank.
  virtual absl::StatusOr<std::vector<int64_t>> BeginCut(const Cut& cut) = 0;
  // Pull with the state at an announced cut. Returns when it is reached.
  virtual absl::Status PullCut(uint64_t cut_id, int64_t clock) = 0;
  // Rows of a table, [n] keys with [n, dim] values.
  using RowSink = absl::FunctionRef<absl::Status(
      absl::Span<const int64_t> keys, absl::Span<const float> values)>;
  // Gives `sink` every row of a table as of a cut, several at a time, in any
  // order, each once. Errors: the sink's too.
  virtual absl::Status ScanTable(uint32_t table, int64_t dim, uint64_t cut_id,
                                 int64_t clock, RowSink sink) = 0;
  virtual absl::Status EndCut(uint64_t cut_id, int64_t clock) = 0;
  // EndCut of a cut for kRegime that is reached: its regime is in force. Errors
  // end the job: some shard may have taken the regime and another one not.
  virtual absl::Status CommitRegime(uint64_t /*cut_id*/, int64_t /*clock*/) {
    return absl::UnimplementedError("the regime of this exchange is fixed");
  }
  // True if an answer has said that the regime changes, or may change, at the
  // clock of the values that were read last.
  virtual bool has_regime_news() const { return false; }
  // Returns the regimes of the job, once it is decided whether one begins with
  // step `clock`, the next of this rank: then the step follows it, and its
  // values have to be read again. Blocks until the cut there has ended. Between
  // steps.
  virtual absl::StatusOr<RegimeSchedule> FollowRegimes(int64_t /*clock*/) {
    return absl::UnimplementedError("the regime of this exchange is fixed");
  }
  // Returns when an announced cut is reached, and reads nothing.
  virtual absl::Status AwaitCut(uint64_t /*cut_id*/, int64_t /*clock*/) {
    return absl::UnimplementedError("this exchange makes no checkpoints");
  }
  // The checkpoint at an announced cut, CutUse::kCheckpoint, that is reached.
  // It outlives the cut, not this. Null: nothing here is written.
  virtual std::unique_ptr<CheckpointWriting> OpenCheckpoint(
      uint64_t /*cut_id*/) {
    return nullptr;
  }

  // In place of all other calls, once one has failed or Cancel was called: the
  // clock behind whose steps this rank has the job's whole state, others or
  // not. Unset: it has not.
  virtual std::optional<int64_t> OwnClock() const { return std::nullopt; }
  // The checkpoint there, which this rank writes alone. It does not outlive
  // this. REQUIRES: OwnClock.
  virtual std::unique_ptr<CheckpointWriting> SaveAlone(uint64_t /*cut_id*/) {
    return nullptr;
  }

  // --- A step: BeginStep, OnGradientReady for each tensor (unless sample_count
  // is 0), EndBackward, Wait. None but Wait blocks for other ranks. ---

  struct Step {
    int64_t clock = 0;
    // 0: this rank has no gradient. The step still counts as made.
    uint64_t sample_count = 0;
    // The gradient is that of an earlier step, which was applied without it.
    bool is_late = false;
    // Leased data: the rank's next step, which closes those between, and whose
    // values are wanted. 0: the step after this one.
    int64_t next_clock = 0;
    // The rank's last step.
    bool finished = false;
    // True if the values for the next step are wanted.
    bool pull = true;
    // The lost worker in whose place the step is made: `clock`, `next_clock`
    // and `finished` are its own. None: it is the rank's own step. REQUIRES:
    // not `pull`.
    std::optional<uint32_t> for_rank = {};
    // By table: the rows of the step's batch, whose gradients are taken by
    // EndBackward.
    absl::Span<RowBatch* const> rows = {};
  };
  virtual void BeginStep(const Step& step) = 0;
  // Between BeginStep and EndBackward: asks for what is wanted early of
  // `next_rows`, before the step's own gradients are applied; none of these
  // rows may be among the step's. A row is good for the next step if all ranks'
  // steps before `min_clock` are in it; what comes older is read again by the
  // end of Wait.
  virtual void PullEarly(absl::Span<RowBatch* const> next_rows,
                         int64_t min_clock) = 0;
  // In place of OnGradientReady: the step has no gradient, because its loss is
  // not finite, and the job wants such a step to be left out. `own_values`:
  // this rank's values are why, and it is counted.
  virtual void AbandonStep(bool own_values) = 0;
  // True since AbandonStep, or since a gradient was found not to be finite by a
  // job that leaves such steps out; until the next BeginStep. Final from
  // EndBackward on.
  virtual bool step_abandoned() const = 0;
  // True if no rank's gradient of step `clock` was applied, because one was not
  // finite: in SYNC, of a job that leaves such steps out; all ranks are told
  // the same. In the other modes ranks leave out steps of their own, and this
  // is false. REQUIRES: values that step `clock` + 1 computes with, or of a cut
  // at that clock, are what was read last.
  virtual bool was_skipped(int64_t clock) const = 0;
  // Of jobs whose steps end without some ranks: the clock that is open; a rank
  // that is behind it goes on there, since its steps in between would count for
  // nothing. At most that of a cut which is announced and not ended. 0: all
  // ranks are waited for. REQUIRES: the values of a next step were read last.
  virtual int64_t open_clock() const { return 0; }
  // Of jobs with leased data: the step that this rank makes after the one whose
  // values were read last; the job's number of clocks: none. 0: not leased.
  virtual int64_t leased_clock() const { return 0; }
  // Workers that the others go on without (PullResponseHeader.lost_workers), in
  // the order in which they were lost. All those are known whose first_clock is
  // at most that of the values that were read last.
  struct LostWorker {
    uint32_t rank = 0;
    int64_t first_clock = 0;  // whose samples the others have
  };
  virtual std::vector<LostWorker> lost_workers() const { return {}; }
  // Of jobs with leased data, the chief's: clocks of lost workers that it makes
  // in their place (PullResponseHeader.returned), as answers have said since
  // the last call. `next_clock`: 0: the worker has no clock behind this one.
  struct ReturnedClock {
    uint32_t rank = 0;
    int64_t clock = 0;
    int64_t next_clock = 0;

    friend bool operator==(const ReturnedClock&,
                           const ReturnedClock&) = default;
  };
  virtual std::vector<ReturnedClock> TakeReturned() { return {}; }
  // PullCut and AwaitCut call `make` where the cut waits for such clocks: it
  // makes those that TakeReturned has. Before the first call.
  virtual void UseReturned(std::function<absl::Status()> /*make*/) {}
  // True if step `clock`, the latest, was made without this rank's gradient, as
  // answers have said so far. Behind a step without `pull` it is true only
  // where the clock was over before the step began.
  virtual bool was_left_behind(int64_t /*clock*/) const { return false; }
  // Steps of all ranks that had no effect, as far as this rank knows; see
  // JobProgress. Complete after the last step's Wait. None: the ps of the job
  // know. Thread-safe.
  struct LeftOut {
    uint64_t skipped_clocks = 0;
    uint64_t dropped_blocks = 0;

    friend bool operator==(const LeftOut&, const LeftOut&) = default;
  };
  virtual std::optional<LeftOut> left_out() const { return std::nullopt; }
  // Of an exchange whose values are at their owners alone: between BeginStep
  // and EndBackward it gathers those that the step's operators read. Null: the
  // tensors have the values.
  virtual ParameterGatherer* gatherer() { return nullptr; }
  // The gradient of `tensor` is final, and its value is not read again in this
  // step. Tensors are numbered as the job's parameters; each comes once, in the
  // order in which backward is done with them.
  virtual void OnGradientReady(uint32_t tensor) = 0;
  // All gradients are there, those of rows too. `next_rows`, by table, is what
  // is wanted for the next step, but for what is wanted early; it is filled in
  // by the end of Wait. Empty where there are no tables, or `pull` is false.
  virtual void EndBackward(absl::Span<RowBatch* const> next_rows) = 0;
  // Returns when the gradient has been taken, and with `pull` the values of the
  // next step are here.
  virtual absl::Status Wait() = 0;

  // The latest Wait's time by cause, one after the other.
  struct WaitTimes {
    absl::Duration push;  // until the last gradient had left
    absl::Duration wait;  // until the other ranks let the last value be read
    absl::Duration pull;  // until it was here
  };
  virtual WaitTimes wait_times() const = 0;

  // In place of steps, of a rank of a job that begins behind its last clock:
  // returns when all ranks may leave.
  virtual absl::Status Leave(int64_t /*clock*/) { return absl::OkStatus(); }

  // Before CommitRegime, at a cut for kRegime that is reached: all that has to
  // be there before the regime can be in force. Blocks until the other ranks
  // have it, too. An error ends the change, and not the job: EndCut follows.
  virtual absl::Status PrepareRegime(uint64_t /*cut_id*/, int64_t /*clock*/) {
    return absl::OkStatus();
  }
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_EXCHANGE_PARAMETER_EXCHANGE_H_
