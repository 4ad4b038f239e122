#ifndef SYNCLINE_WORKER_CLIENT_PS_CLIENT_H_
#define SYNCLINE_WORKER_CLIENT_PS_CLIENT_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/base/element_type.h"
#include "common/cuts/cut_id.h"
#include "common/job/job_pass.h"
#include "common/job/worker_groups.h"
#include "common/regime/regime_schedule.h"
#include "common/wire/block_map.h"
#include "kernels/optimizer/finite.h"
#include "worker/client/answer_log.h"
#include "worker/client/carry_over.h"
#include "worker/client/client_context.h"
#include "worker/client/cut_calls.h"
#include "worker/client/dense_steps.h"
#include "worker/client/header_encoder.h"
#include "worker/client/pushed_step.h"
#include "worker/client/row_steps.h"
#include "worker/client/transport/client_telemetry.h"
#include "worker/client/transport/fanout_call.h"
#include "worker/exchange/dense_tensors.h"
#include "worker/exchange/gradient_compressor.h"
#include "worker/exchange/parameter_exchange.h"
#include "worker/exchange/residual_saver.h"
#include "worker/exchange/transfer_counts.h"

namespace syncline::worker {

// The exchange of a rank through the parameter servers of a job: gradients go
// to the shards that have their blocks or rows, in chunks that leave while
// backward runs, and values come back from there. Shards without a block are
// never contacted, unless the job has embedding tables.
//
// PushedStep has what the pushes of a step say of it, DenseSteps and RowSteps
// move its tensors and rows, CutCalls makes the calls about cuts. PsClient puts
// them together, and decides whether a step has a gradient.
//
// Gradients are sent straight out of their memory, values are copied once.
// Errors name ps, address, job, clock and call. ParameterExchange has the
// contract of each function; a call that blocks waits for all shards.
class PsClient : public ParameterExchange {
 public:
  struct Options {
    std::string job_id;
    uint32_t rank = 0;
    uint64_t incarnation = 0;
    uint64_t routing_version = 1;
    JobPass pass = {};
    std::vector<FanoutCall::Peer> ps;  // by shard
    absl::Duration step_timeout = absl::Seconds(60);
    // Mode and wire type, by clock, as the rank begins; later ones come with
    // FollowRegimes.
    RegimeSchedule regimes = {};
    // Groups of workers that are one worker to the ps each: what is said of
    // clocks is by worker here, and by group there. None: it is the same.
    WorkerGroups groups = {};
    // The servers clip by a norm. But for SYNC it is that of each push: pushes
    // leave when the whole gradient is known, not before.
    bool clip_norm = false;
    // The optimizer is LAMB.
    bool trust_ratio = false;
    // Clocks end without some workers: with those of which all shards have the
    // whole gradient.
    bool leaves_behind = false;
    // The job's data are leased: shard 0 says in its answers which steps the
    // rank makes. Cuts are at one clock of all ranks.
    bool leases = false;
    // Payload of one message at most; ChunkBuilder says when less is sent.
    size_t chunk_bytes = 1 << 20;
    // Bytes of gradients that are on their way to a shard, or in its queues, at
    // a time. Enough to keep a connection and its optimizer busy: what is
    // beyond it would lie in the memory of the ps.
    size_t push_window_bytes = 4 << 20;
    // Bytes of values that are asked for at a time, by calls that only pull.
    size_t pull_window_bytes = 8 << 20;
    // The job has embedding tables: every shard takes part.
    bool has_tables = false;
    // With a ps on this host: payloads go through shared memory, so many bytes
    // of pushes and of pulls at a time.
    bool shared_memory = true;
    size_t shared_window_bytes = 8 << 20;
    // Payload of one such message: nothing of it travels.
    size_t shared_chunk_bytes = 2 << 20;
    std::string boot_id = {};  // empty: the system's
    // Of this rank's cuts: who it is.
    CutSeries cut_series = CutSeries::kChief;
    // kSkipStep, where shards do not find out together (all but SYNC): pushes
    // leave when the whole gradient is known to be finite.
    OnNonFinite on_non_finite = OnNonFinite::kFailJob;
    // FanoutCall's; may be null.
    std::function<void(uint32_t shard, absl::Duration out_of_reach,
                       const absl::Status& error)>
        on_unreachable = nullptr;
    ClientTelemetry telemetry = {};
    // Of a rank that makes steps, if its regime compresses; the regime has the
    // kind. `running_means`: if empty, those of the tensors. Residuals are in
    // `carry_over`.
    GradientCompressor::Options compressor = {};
    // Before it is compressed, the norm of the rank's mean gradient is cut so
    // that a step has this one at most (GradientCompressor::Clip); 0: it is
    // not.
    double clip_before_compression = 0;
    // Of the rank's checkpoints, in SYNC; null: what it keeps is not saved.
    std::shared_ptr<ResidualSaver> residuals = nullptr;
    // Outlives this; may be null.
    TransferCounts* counts = nullptr;
    // Of the rank's former client, if there was one; null: there will be one
    // client only.
    std::shared_ptr<CarryOver> carry_over = nullptr;
    // CheckpointCalls'.
    bool own_checkpoint_folders = false;
  };
  // `tensors` are those of `map`; a ps on this host reads gradients where they
  // are, if they lie in a gradient region. REQUIRES: one peer per shard of
  // `map`, spans as long as their tensors.
  PsClient(const Options& options, BlockMap map, DenseTensors tensors);
  ~PsClient() override;

  void Cancel(const absl::Status& reason) override;
  absl::Status Init(int64_t total_clocks) override;
  absl::Status Pull(int64_t clock) override;
  absl::Status PullRows(int64_t clock, uint64_t cut_id,
                        absl::Span<RowBatch* const> rows) override;
  absl::Status ReportActivity(int64_t clock, absl::string_view what,
                              uint64_t done, uint64_t total) override;
  absl::StatusOr<std::vector<int64_t>> BeginCut(const Cut& cut) override;
  absl::Status PullCut(uint64_t cut_id, int64_t clock) override;
  absl::Status ScanTable(uint32_t table, int64_t dim, uint64_t cut_id,
                         int64_t clock, RowSink sink) override;
  absl::Status EndCut(uint64_t cut_id, int64_t clock) override;
  absl::Status AwaitCut(uint64_t cut_id, int64_t clock) override;
  absl::Status CommitRegime(uint64_t cut_id, int64_t clock) override;
  bool has_regime_news() const override {
    return answers_.Regimes() > regimes_.regimes().size();
  }
  absl::StatusOr<RegimeSchedule> FollowRegimes(int64_t clock) override;
  std::unique_ptr<CheckpointWriting> OpenCheckpoint(uint64_t cut_id) override;
  void BeginStep(const Step& step) override;
  void PullEarly(absl::Span<RowBatch* const> next_rows,
                 int64_t min_clock) override;
  void AbandonStep(bool own_values) override;
  bool step_abandoned() const override { return step_.abandoned(); }
  bool was_skipped(int64_t clock) const override {
    return answers_.SkippedThrough() == clock + 1;
  }
  int64_t open_clock() const override {
    return options_.leases ? 0 : answers_.OpenClock();
  }
  int64_t leased_clock() const override {
    return options_.leases ? answers_.OpenClock() : 0;
  }
  std::vector<LostWorker> lost_workers() const override {
    return answers_.Lost();
  }
  std::vector<ReturnedClock> TakeReturned() override {
    return answers_.TakeReturned();
  }
  void UseReturned(std::function<absl::Status()> make) override {
    make_returned_ = std::move(make);
  }
  bool was_left_behind(int64_t clock) const override {
    return !options_.leases && answers_.OpenClock() > clock &&
           answers_.AppliedClocks() <= clock;
  }
  void OnGradientReady(uint32_t tensor) override;
  void EndBackward(absl::Span<RowBatch* const> next_rows) override;
  absl::Status Wait() override;
  WaitTimes wait_times() const override { return wait_times_; }

 private:
  absl::Status PullAll(int64_t clock, uint64_t cut);
  // The values for the step after the open one come as changes to its own.
  bool PullsChanges() const {
    return step_.pulls() && values_of_ == step_.clock() &&
           step_.next_clock() == step_.clock() + 1 &&
           headers_.SendsChanges(step_.clock()) &&
           headers_.SendsChanges(step_.next_clock());
  }
  // Makes the calls of `pull`, at a cut, until no clock is left that this rank
  // has to make for others before the cut is reached.
  absl::Status ReachCut(absl::FunctionRef<absl::Status()> pull);
  // The step's end on all shards where it has no gradient, and where it has.
  void CloseEmpty(absl::Span<RowBatch* const> next_rows);
  absl::Status SendStep(absl::Span<RowBatch* const> next_rows);
  // Of the open step, whose regime decides: its pushes have a norm; it has no
  // gradient if that is not finite.
  bool SendsNorm() const { return options_.clip_norm && !regime_.sync(); }
  bool ChecksGradient() const {
    return options_.on_non_finite == OnNonFinite::kSkipStep && !regime_.sync();
  }
  bool ClipsBefore() const {
    return Compresses() && options_.clip_before_compression > 0;
  }
  // The gradient is not sent before all of it is known.
  bool HoldsGradient() const {
    return SendsNorm() || ChecksGradient() || ClipsBefore();
  }
  GradientCompressor* compressor() const {
    return carry_over_->compressor.get();
  }
  // The dense gradients of the open step are compressed. In HYBRID the ps have
  // none.
  bool Compresses() const {
    return regime_.compression.any() &&
           regime_.strategy == TrainingRegime::Strategy::kParameterServer;
  }
  // How the open step's dense gradients travel; in float32 where not finite.
  ElementType DenseType() const {
    return Compresses() ? ElementType::kFloat32 : regime_.wire_type;
  }
  // Makes the compressor, where there is none, and lets it follow the regime of
  // the step that begins.
  void FollowCompression();
  // Compresses the gradient of `tensor`, where the job does, and sends it.
  void SendTensor(uint32_t tensor);
  // Scales the open step's gradient down as clip_before_compression says.
  // Errors: SquaredNorm's.
  absl::Status ClipBefore();
  // Residuals are as before a step of which nothing was applied.
  void UndoSkippedStep();
  // Answers may have told of a checkpoint's cut; the next step may be another
  // client's.
  void NotePassedCheckpoint();
  // Saves residuals where a checkpoint is cut in front of step `clock`.
  void SaveResiduals(int64_t clock);
  CutCalls::Options CutOptions() const;
  bool TakesPart(uint32_t shard) const;
  // For calls between steps. Their answers may be the first to say that the
  // last step was skipped, and the next client of this rank does not have them.
  absl::Status WaitForNews();
  // Everything that is under way, and then what came back too old.
  absl::Status WaitForAll();
  // Of the open step's gradient, finite as its dense tensors travel: a job that
  // compresses sends no norm of rows. Errors: SquaredNorm's.
  absl::StatusOr<double> NormOf(absl::Span<RowBatch* const> rows) const;
  ClientContext MakeContext();

  const Options options_;
  const BlockMap map_;
  const DenseTensors tensors_;
  HeaderEncoder headers_;
  PushedStep step_;
  // The clock whose values, as workers train with them, the tensors have; none:
  // they may have others.
  std::optional<int64_t> values_of_;
  const std::shared_ptr<CarryOver> carry_over_;
  int64_t begun_ = -1;  // the latest step's clock
  RegimeSchedule regimes_;
  TrainingRegime regime_;  // of the open step
  AnswerLog answers_;
  ClientContext context_;
  CutCalls cuts_;
  DenseSteps dense_;
  RowSteps rows_;
  std::vector<uint32_t> held_;  // HoldsGradient: tensors ready, in order
  WaitTimes wait_times_;
  std::function<absl::Status()> make_returned_;  // UseReturned's; may be null
  FanoutCall calls_;  // last: its callbacks use the rest
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_CLIENT_PS_CLIENT_H_
