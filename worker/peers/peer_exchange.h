#ifndef SYNCLINE_WORKER_PEERS_PEER_EXCHANGE_H_
#define SYNCLINE_WORKER_PEERS_PEER_EXCHANGE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/base/aligned_buffer.h"
#include "common/base/element_type.h"
#include "common/base/mutex.h"
#include "common/update/dense_updater.h"
#include "worker/client/transport/client_telemetry.h"
#include "worker/compute/device_updater.h"
#include "worker/exchange/dense_tensors.h"
#include "worker/exchange/parameter_exchange.h"
#include "worker/exchange/residual_saver.h"
#include "worker/exchange/transfer_counts.h"
#include "worker/peers/block_owners.h"
#include "worker/peers/compressed_gradients.h"
#include "worker/peers/compressed_sums.h"
#include "worker/peers/peer_checkpoints.h"
#include "worker/peers/peer_link.h"
#include "worker/peers/peer_messages.h"
#include "worker/peers/start_files.h"
#include "worker/peers/step_reduction.h"
#include "worker/peers/unit_gathers.h"

namespace syncline::worker {

// The exchange of a rank of a SYNC job without ps: the ranks reduce gradients
// among themselves (StepReduction), over a PeerTransport.
//
//   facts: samples, abandoned          ─> every rank   with the first gradient
//   gradients of a bucket              ─> its owner    while backward runs
//   norms of an owner's blocks         ─> every rank   where the job needs them
//   sums (ALL_REDUCE) or values of it  ─> every rank   needed first goes first
//
// All decisions and all arithmetic are made by the thread that calls, within
// OnGradientReady, EndBackward and Wait, as messages come; between these calls
// the transport moves bytes. So a rank needs no thread besides the transport's.
//
// 16 bits on the wire: gradients travel rounded. The tensors have the values as
// they are trained with, rounded; what is read at a cut, sent to the evaluator
// or written to a checkpoint is the state's, whole. As after a ps's cut, a rank
// that has read one makes its next step with whole values. By ALL_REDUCE sums
// travel whole, so a step sends three quarters of the bytes. By SHARDED values
// travel rounded, too, so it sends half of them; where the chief reads a cut,
// every rank sends it what it owns, whole, as in stage 3. There the units of
// the step behind go to the chief whole, too, which may have read that cut.
//
// A cut is where this rank is: in SYNC all ranks have made the same steps, and
// each has all values. So nobody is held, and ranks that wait for one that
// evaluates go by its activity. Where the job has an evaluator, the chief gives
// it the values at the cuts that it asks for (EvaluatorExchange), and goes on
// when it has them.
//
// Checkpoints. The chief says in its facts that one is to be made behind the
// step. Then each rank writes the blocks that it owns (PeerCheckpoints) and
// tells the chief what has become of them, which writes the manifest. A job
// that starts from a checkpoint reads all of it at each rank (StartFiles) in
// place of the chief's initial values. With all state at every rank, one that
// has lost another can write a checkpoint by itself (SaveAlone).
//
// Values at their owners alone (SHARDED, stage 3): an owner sends no values
// when it has updated them, but as the next step's operators come to them
// (UnitGathers). Where the chief reads a cut, every rank sends it what it owns
// behind the step before, since the chief has said in its facts that it will;
// the tensors have whole values from then until its next step. So they do from
// the job's beginning until the first step.
//
// Updates on a GPU. ALL_REDUCE (Options::on_device): sums go to the device that
// computes gradients, which has all values and state, and updates them by one
// launch; a step computes with what is there. The host gets values where a cut
// is read, the evaluator wants them or the job ends. SHARDED, stage 1
// (Options::owner_device): the sums of an own bucket go to the device, and its
// values come back, while gradients are computed there. By both the host gets
// the state of this rank's blocks for a checkpoint, and all that this rank has
// where the strategy changes.
//
// Memory, besides the executor's, of P parameters and n ranks: the state of
// StepReduction (of all blocks, or P / n of them), the gradients of the other
// ranks for the own blocks, (n - 1) P / n, and, with replicated state, the sums
// of all blocks, P. With 16 bits on the wire the gradients of the other ranks
// take half, and those that leave as much as that saves; by SHARDED values on
// their way take P / 2, too, and in stage 3 P / 2n. Of compressed gradients
// there is what CompressedGradients counts.
class PeerExchange : public ParameterExchange {
 public:
  struct Options {
    bool replicates = false;  // ALL_REDUCE; else SHARDED
    // Whenever another rank is lost, the state is that behind a clock, whole
    // (OwnClock); else it may have a part of the open step. Updates wait for
    // the step's last sum. REQUIRES: `replicates`.
    bool applies_together = false;
    // Gradients are taken out of the executor's memory as soon as they are
    // ready (DenseTensors.gradient_of): SHARDED from stage 2 on.
    bool frees_gradients = false;
    // Steps gather values for each use (DenseTensors.gather_units): SHARDED,
    // stage 3. REQUIRES: frees_gradients.
    bool frees_values = false;
    // Of gradients, and of the values that are trained with.
    ElementType wire_type = ElementType::kFloat32;
    // Gradients are compressed in place of being rounded; values are not.
    // Clipping them before needs whole gradients, so it does not go with
    // frees_gradients. Default: they are not.
    CompressedGradients::Options compression = {};
    DenseUpdater::Options update = {};
    bool needs_total_clocks = false;
    std::vector<std::optional<float>> momenta = {};  // by tensor
    BucketSizes buckets = {};
    ClientTelemetry telemetry = {};
    TransferCounts* counts = nullptr;  // outlives this; null: nobody asks
    // Of the job; label and ranks are filled in. None: it makes none.
    std::optional<PeerCheckpoints::Options> checkpoints = {};
    // Saves the rank's residuals and momentum at cuts; null: nobody does.
    std::shared_ptr<ResidualSaver> residuals = nullptr;
    // The state that the job begins with. Null: the chief's initial values.
    std::shared_ptr<const StartFiles> start = nullptr;
    // Takes the memory of the state; an error ends that. May be null.
    GoOnCheck go_on = nullptr;
    // The device makes the updates, and has the state. None: the processors do.
    // REQUIRES: `replicates`, float32 on the wire, no compression, and
    // HasTensorUpdates of the device.
    std::optional<DeviceTensors> on_device = {};
    // Not `replicates`: makes the updates of the own blocks; outlives the
    // exchange. Null: the processors do. REQUIRES: not frees_values;
    // HasTensorUpdates of the device.
    Device* owner_device = nullptr;
  };

  // `map` is OwnedBlocks of `tensors`. Takes all memory. Errors:
  // InvalidArgument: a map for another number of ranks, or too many units;
  // ResourceExhausted.
  static absl::StatusOr<std::unique_ptr<PeerExchange>> Create(
      Options options, BlockMap map, DenseTensors tensors,
      std::shared_ptr<PeerLink> link);
  // Ends the group.
  ~PeerExchange() override;

  // Of one rank, besides the executor's: state, and memory of messages.
  struct Memory {
    int64_t value_bytes = 0;     // that it updates
    int64_t slot_bytes = 0;      // of the optimizer
    int64_t gradient_bytes = 0;  // of other ranks, and sums
    int64_t copy_bytes = 0;      // for checkpoints

    int64_t bytes() const {
      return value_bytes + slot_bytes + gradient_bytes + copy_bytes;
    }
  };
  static Memory MemoryOf(const Options& options, const BlockMap& map,
                         uint32_t rank);
  // Of the device, where it updates; `counts`: elements by tensor.
  static uint64_t DeviceBytes(const Options& options, const BlockMap& map,
                              absl::Span<const int64_t> counts, uint32_t rank);

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
  std::unique_ptr<CheckpointWriting> OpenCheckpoint(uint64_t cut_id) override;
  // Where every rank has all state (ALL_REDUCE).
  std::optional<int64_t> OwnClock() const override;
  std::unique_ptr<CheckpointWriting> SaveAlone(uint64_t cut_id) override;
  void BeginStep(const Step& step) override;
  void PullEarly(absl::Span<RowBatch* const> next_rows,
                 int64_t min_clock) override;
  void AbandonStep(bool own_values) override;
  absl::Status Leave(int64_t clock) override;
  bool step_abandoned() const override { return facts_.abandoned; }
  bool was_skipped(int64_t clock) const override {
    return reduction_.skipped_through() == clock + 1;
  }
  void OnGradientReady(uint32_t tensor) override;
  void EndBackward(absl::Span<RowBatch* const> next_rows) override;
  absl::Status Wait() override;
  WaitTimes wait_times() const override { return wait_times_; }

  std::optional<LeftOut> left_out() const override;
  ParameterGatherer* gatherer() override { return gathers_.get(); }

  // --- Where the strategy or the wire type changes, between two steps
  // (peer_exchange_switch.cc)

  // The change that the chief has announced for the clock of the next step.
  struct AnnouncedSwitch {
    uint64_t cut_id = 0;
    TrainingRegime::Strategy strategy = TrainingRegime::Strategy::kAllReduce;
    ElementType wire_type = ElementType::kFloat32;
  };
  const std::optional<AnnouncedSwitch>& announced_switch() const {
    return announced_switch_;
  }
  bool has_regime_news() const override {
    return announced_switch_.has_value();
  }
  // The tensors have the values that this exchange trains with, where one with
  // `before` on the wire has left others there. Behind BeginWith, and when no
  // rank goes back any more.
  void ShowValues(ElementType before);
  // The values and the optimizer's state that this rank has, and what goes with
  // them: `non_finite` is what this rank has found, and at the chief what was
  // found before.
  const StepReduction& reduction() const { return reduction_; }
  ShardStateHeader StateHeader() const;
  const std::shared_ptr<PeerLink>& link() const { return link_; }

  // In place of Init and Pull, where another exchange has trained before: the
  // state, then BeginWith. Until the tensors are written there, they have what
  // they had.

  // A block's elements and updates, of an array; those of a block that this
  // rank does not update are left out. Several threads, for different arrays.
  void RestorePiece(uint32_t block, uint32_t array, absl::string_view floats,
                    int64_t updates);
  // Where ps have trained: the array from which on the state of a block is
  // theirs alone. Before it are the values, which the tensors have whole unless
  // they travel in 16 bits; updates come with some array.
  uint32_t first_array_of_ps() const {
    return narrows() || reduction_.updater().arrays() == 1 ? 0 : 1;
  }
  // The rest of the state, where this rank has been given, by RestorePiece, the
  // arrays of the blocks that it owns from first_array_of_ps on. Every rank
  // calls it at the same time, if all ranks are to have all state: the owners
  // send theirs. Errors: PeerLink::Await's.
  absl::Status RestoreRest(int64_t clock);
  // All of the state, that `before` has here, of the same ranks and blocks.
  // Where each block's state is at one rank there, and at all ranks here, every
  // rank calls it at the same time, and the owners send theirs. Errors:
  // PeerLink::Await's.
  absl::Status RestoreFrom(const PeerExchange& before, int64_t clock);
  // `header`: the job's, in which non_finite is of all ranks.
  void BeginWith(const ShardStateHeader& header, int64_t clock);

 private:
  // An event that a callback passes on to the thread that calls.
  struct News {
    PeerMessage kind = kFacts;
    uint32_t from = 0;
    uint32_t bucket = 0;
  };
  PeerExchange(Options options, BlockMap map, std::vector<Bucket> buckets,
               DenseTensors tensors, std::shared_ptr<PeerLink> link);
  void CompressSums();
  // Errors: ResourceExhausted: the device has not as much; the device's.
  absl::Status UpdateOnDevice();
  void MakeMessages();
  bool Owns(uint32_t bucket) const {
    return buckets()[bucket].owner == link_->rank();
  }
  const std::vector<Bucket>& buckets() const { return reduction_.buckets(); }
  std::vector<uint32_t> OtherRanks() const;
  bool narrows() const { return options_.wire_type != ElementType::kFloat32; }
  // Whole values of a block are at its owner alone.
  bool divides_values() const {
    return options_.frees_values || (narrows() && !options_.replicates);
  }
  // Values of other owners come rounded into the tensors: by SHARDED, stages 1
  // and 2, with 16 bits on the wire.
  bool rounds_tensors() const {
    return narrows() && !options_.replicates && !options_.frees_values;
  }
  bool compresses() const { return compressed_ != nullptr; }
  // Of a bucket's gradient, if it is not compressed, and of its values between
  // owners, as they travel.
  size_t GradientBytes(uint32_t bucket) const {
    return buckets()[bucket].elements * ElementBytes(options_.wire_type);
  }

  PeerTag TagOf(PeerMessage kind, uint32_t item) const {
    return TagAt(clock_, kind, item);
  }
  static PeerTag TagAt(int64_t clock, PeerMessage kind, uint32_t item) {
    return {.clock = clock, .kind = kind, .item = item};
  }
  // The pieces stay until `Wait` returns.
  void Send(uint32_t to, const PeerTag& tag,
            absl::Span<const ConstPeerMemory> pieces);
  // The same, of memory that is kept for the next bucket then.
  void SendBuffer(uint32_t to, const PeerTag& tag, AlignedFloats buffer,
                  size_t size);
  void SendToAll(const PeerTag& tag, absl::Span<const ConstPeerMemory> pieces);
  void Receive(uint32_t from, const PeerTag& tag, PeerMemory memory, News news);
  void Tell(News news) ABSL_LOCKS_EXCLUDED(mu_);

  void SendFacts();
  void ReceiveFacts(uint32_t rank);
  // On the transport's thread, as ReceiveGradients: `clock` is the step's.
  void OnFacts(uint32_t rank, int64_t clock);
  void ReceiveGradients(uint32_t rank, int64_t clock);
  void SendGradient(uint32_t bucket);
  void SendNarrowed(uint32_t bucket);
  void SendCompressed(uint32_t bucket);
  // On the transport's thread: the sizes of a bucket's blocks, then these.
  void ReceiveCompressed(uint32_t rank, uint32_t bucket, int64_t clock);
  void Compress(uint32_t tensor);
  // Compresses and sends what waited for the whole gradient.
  void CompressAll();
  void FinishTensor(uint32_t tensor);
  // A bucket's gradient leaves in so many bytes.
  void CountGradient(uint32_t bucket, size_t bytes);
  // Values of other owners, or their sums, have come.
  void CountValues(ElementType type, size_t elements) {
    CountValues(elements * ElementBytes(type), elements);
  }
  void CountValues(size_t bytes, size_t elements);
  void SendNarrowedValues(uint32_t bucket);
  void ReceiveNarrowedValues(uint32_t bucket);
  // Such values that have come, to the tensors.
  void TakeNarrowedValues(uint32_t bucket);
  // Behind the step: what the host reads of the device's updates. Errors: the
  // device's.
  absl::Status FetchFromDevice();
  // Rounds all values in the tensors to the wire type, if rounds_.
  void RoundTensors();
  // With frees_gradients: the tensor's gradient into the messages of its
  // buckets.
  void TakeGradient(uint32_t tensor);
  AlignedFloats TakeBuffer(size_t elements) ABSL_LOCKS_EXCLUDED(mu_);
  // Waits while too many gradients are on their way.
  void AwaitRoom();
  // Of the buckets that this rank is done with and the others answer.
  void ReceiveResults();
  void ReceiveNorms();
  void ReceiveValues(uint32_t bucket, PeerMessage kind, int64_t clock);
  void SendOut(const StepReduction::Outgoing& out);
  // Takes what has come, does what can be done, sends what is to be sent.
  void Pump() ABSL_LOCKS_EXCLUDED(mu_);
  void Take(const News& news);
  void TakeCompressed(uint32_t rank, uint32_t bucket);
  void SendCompressedSum(uint32_t bucket);
  void ReceiveCompressedSum(uint32_t bucket, int64_t clock);
  absl::Status TakeSum(uint32_t bucket);
  size_t HeadElements(uint32_t bucket) const;
  void WarnOfFound();
  void MakeGathers();  // with frees_values
  // With divides_values: the chief reads the values behind the open step.
  bool WantsValues() const;
  // Behind the step: brings what the chief wants. Errors: PeerLink::Await's.
  absl::Status BringValues();
  // OK at a cut of this rank's clock.
  absl::Status CheckCut(uint64_t cut_id, int64_t clock) const;
  // Until Pump has made done() true and nothing of this rank is on its way.
  absl::Status AwaitAll(absl::FunctionRef<bool()> done);
  // Until Pump has made done() true. `missing`: what is waited for, in words.
  absl::Status AwaitPumping(absl::FunctionRef<bool()> done,
                            absl::FunctionRef<std::string()> missing);
  // All steps before `clock`, the job's last, are made.
  absl::Status EndTogether(int64_t clock);
  void OpenCheckpoints();
  // The cut of the checkpoint behind the open step; 0: none.
  uint64_t CheckpointCut() const;
  // The next step is made with values as they are sent.
  void ShowRounded();
  // The values of blocks that the tensors have whole.
  void RestoreValues();
  // The arrays from `first_array` on, and updates, from the owners of blocks.
  absl::Status GatherState(int64_t clock, uint32_t first_array);
  // The change of the strategy behind the open step.
  std::optional<AnnouncedSwitch> SwitchBehindStep() const;
  // The state behind the last step, without what a writer knows.
  ShardStateHeader HeaderAt(int64_t clock, bool finished) const;
  // After the step: this rank's part, and at the chief the others'.
  void WriteCheckpoint(uint64_t cut_id);
  void ReceivePart(uint32_t rank, uint64_t cut_id);
  // Once for each clock; what comes later is left out.
  void SendPart(const absl::StatusOr<CheckpointWriting::Part>& part,
                int64_t clock) ABSL_LOCKS_EXCLUDED(mu_);
  // Until the chief knows what has become of this rank's part. A disk that
  // stands still fails the checkpoint and not the job: the part is given up.
  absl::Status AwaitPartSent();
  void GiveUpParts(const absl::Status& why) ABSL_LOCKS_EXCLUDED(mu_);
  // Takes the state that the job begins with.
  absl::Status LoadStart();
  // The chief's: gives the evaluator the values before step `clock`, if it
  // wants them, and waits until it has them. Else says now and then that the
  // job goes on, since the evaluator hears nothing of steps.
  absl::Status ServeEvaluator(int64_t clock);
  void SumUpLeftOut() ABSL_LOCKS_EXCLUDED(mu_);
  void Fail(const absl::Status& status) { link_->Cancel(status); }
  // `status` of what another rank sent of a clock.
  absl::Status OfRank(uint32_t rank, int64_t clock,
                      const absl::Status& status) const;
  void FailOf(uint32_t rank, int64_t clock, const absl::Status& status);

  const Options options_;
  const DenseTensors tensors_;
  const std::shared_ptr<PeerLink> link_;
  const std::string label_;
  StepReduction reduction_;
  const uint64_t layout_hash_;     // all ranks have the same
  const uint64_t evaluator_hash_;  // and the evaluator
  std::vector<std::vector<uint32_t>> tensor_buckets_;  // by tensor
  // Where payloads of the own buckets come, by rank, as they travel; in a
  // rank's memory a bucket is at its offset.
  std::vector<AlignedFloats> gradients_;
  std::vector<size_t> own_offsets_;  // by bucket
  // In their place, if gradients are compressed; else null.
  std::unique_ptr<CompressedGradients> compressed_;
  // Of sums, if they are compressed; else null.
  std::unique_ptr<CompressedSums> compressed_sums_;
  // With frees_gradients, by bucket of another rank: what has been taken of it.
  std::vector<AlignedFloats> taken_;
  // With 16 bits on the wire: the own gradients of the other ranks' buckets.
  AlignedFloats narrowed_;
  std::vector<size_t> narrowed_offsets_;  // by bucket
  // By SHARDED: the values of the other ranks' buckets, which lie as those
  // gradients do, and of the own ones, as in gradients_.
  AlignedFloats values_in_;
  AlignedFloats values_out_;
  // Replicated: BlockSums and sums of the other buckets; where sums are
  // compressed BlockSums and sizes, which are a message before them.
  AlignedFloats sums_;
  std::vector<size_t> sum_offsets_;  // by bucket
  std::vector<std::unique_ptr<FactsMessage>> facts_in_, facts_out_;  // by rank
  std::vector<std::vector<double>> norms_in_[2];  // by stage, by rank
  std::vector<double> norms_out_[2];
  std::vector<AlignedFloats> sums_out_;  // by own bucket: its BlockSums

  // The thread's that calls.
  bool is_open_ = false;
  bool finished_ = false;  // after the last step nobody waits for this rank
  Step step_;
  StepFacts facts_;
  bool facts_sent_ = false;
  int64_t clock_ = 0;                 // of the open step, or the next one
  std::vector<uint32_t> unfinished_;  // by bucket: tensors to come
  std::vector<bool> sent_;            // by bucket
  std::vector<uint32_t> held_;        // tensors that wait for CompressAll
  std::vector<bool> awaited_;         // by bucket: its result is
  bool norms_awaited_[2] = {false, false};
  struct AnnouncedCut {
    int64_t clock = 0;
    CutUse use = CutUse::kEvaluation;
    AnnouncedSwitch change = {};  // kRegime
  };
  std::map<uint64_t, AnnouncedCut> cuts_;
  std::optional<AnnouncedSwitch> announced_switch_;  // behind the last step
  int64_t total_clocks_ = 0;
  // Found by an attempt before this one, by all ranks.
  uint64_t found_before_ = 0;
  // Of the latest checkpoint; the chief's.
  uint64_t parts_cut_ = 0;
  // The next clock whose values the evaluator wants; -1: none. The chief's.
  int64_t evaluator_clock_ = -1;
  FactsMessage evaluator_head_;
  FactsMessage evaluator_read_;
  absl::Time evaluator_told_ = absl::InfinitePast();
  std::shared_ptr<PartsOfRanks> parts_;
  WaitTimes wait_times_;
  absl::Time heard_at_ = absl::InfinitePast();  // the last that was waited for
  absl::Time next_warning_ = absl::InfinitePast();
  uint64_t found_told_ = 0;
  uint64_t dropped_ = 0;  // blocks, of all ranks, as far as this one knows

  std::atomic<uint64_t> news_count_{0};
  std::atomic<int64_t> sending_{0};  // messages
  std::atomic<int64_t> sending_gradients_{0};
  std::atomic<int64_t> buffered_bytes_{0};  // in messages of SendBuffer
  std::atomic<int64_t> gradients_left_nanos_{0};
  mutable Mutex mu_;
  std::vector<News> news_ ABSL_GUARDED_BY(mu_);
  LeftOut left_out_ ABSL_GUARDED_BY(mu_);
  std::vector<AlignedFloats> free_buffers_ ABSL_GUARDED_BY(mu_);
  // The clocks of cuts whose part of this rank the chief has not been sent.
  std::set<int64_t> unsent_parts_ ABSL_GUARDED_BY(mu_);
  // These, and those on their way.
  std::atomic<int> parts_to_tell_{0};
  std::unique_ptr<PeerCheckpoints> checkpoints_;  // null: the job makes none
  std::unique_ptr<PeerCheckpoints> alone_;        // SaveAlone's
  // With divides_values. The clock whose whole values the tensors have, at the
  // chief; -1: they have none.
  int64_t whole_clock_ = -1;
  // The next step is made with rounded values, and those in the tensors may be
  // whole. They stay so until nobody reads them any more.
  bool rounds_ = false;
  bool has_read_whole_ = false;  // and has not rounded them since
  // The same at all ranks: the chief could read a cut here.
  bool chief_has_whole_ = true;
  bool may_hold_values_ = true;           // the tensors' memory is resident
  std::vector<uint32_t> owned_missing_;   // buckets on their way to the chief
  std::unique_ptr<UnitGathers> gathers_;  // null: steps read the tensors
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_PEERS_PEER_EXCHANGE_H_
