#ifndef SYNCLINE_WORKER_PEERS_STEP_REDUCTION_H_
#define SYNCLINE_WORKER_PEERS_STEP_REDUCTION_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/element_type.h"
#include "common/update/dense_updater.h"
#include "common/update/float_source.h"
#include "common/update/reduction_round.h"
#include "common/wire/block_map.h"
#include "worker/compute/device_updater.h"
#include "worker/exchange/dense_tensors.h"
#include "worker/peers/block_owners.h"

namespace syncline::worker {

// The facts of its step that every rank tells every other one.
struct StepFacts {
  uint64_t sample_count = 0;  // 0: it has no gradient
  bool abandoned = false;     // because its loss is not finite
};

// One rank's part in the SYNC steps of a job without ps: reduces the blocks
// that it owns in the order of ranks, and updates parameters, with the bits of
// a ps (DenseUpdater). It knows no messages: what arrives is told to it, and
// Next says what is to be sent.
//
//   Begin -> facts of all ranks -> gradients of the own buckets
//   replicated state (ALL_REDUCE):
//     owner: the sum of its bucket -> kSum to all others
//     every rank: each bucket's sum is applied; where the job needs norms over
//     all blocks, when all sums are there, with which the norms came
//   else (SHARDED):
//     owner: norms of its blocks -> kNorms to all others, where the job needs
//     some; when all owners' are there, the bucket is applied -> kValues
//
// Policies for values that are not finite, norms and their order are those of a
// ps's clock (server/consistency/sync_clock.h).
//
// 16 bits on the wire: gradients are summed as they are once they have been
// rounded, this rank's own too, and values go to the tensors rounded, which
// steps compute with. The state is never rounded, and sums travel whole unless
// they are replaced (ReplaceSums). So the bits are those of a ps with the same
// wire type.
//
// Updates on a device (UpdateOn): sums are made here and go there, where the
// state is; updater() has that of the latest FetchState. Replicated: sums go as
// they come, and FinishOnDevice makes the step's update when done() is true.
// Else: the values of a bucket come back as soon as it is updated.
//
// Pure: no clock, thread or socket. Thread-compatible. The values of a tensor
// are written only after the gradients of all ranks for the block have come,
// this rank's included.
class StepReduction {
 public:
  struct Options {
    std::string label;               // of the job and this rank, for messages
    std::vector<std::string> ranks;  // names, for messages
    uint32_t rank = 0;
    bool replicates = false;  // every rank has all state
    // Values stay in the state of their owners: none are sent to other ranks
    // and none go to the tensors. REQUIRES: not `replicates`.
    bool keeps_values = false;
    // No value changes before all sums of the step are here. Else each changes
    // when its own is, while others are on their way. REQUIRES: `replicates`.
    bool applies_together = false;
    // Of gradients, and of the values that are trained with.
    ElementType wire_type = ElementType::kFloat32;
    DenseUpdater::Options update = {};
    // The schedule of the learning rate lacks its end.
    bool needs_total_clocks = false;
    std::vector<std::optional<float>> momenta = {};  // by tensor
  };
  // A message that is to be sent to all other ranks.
  struct Outgoing {
    enum class Kind { kNorms, kSum, kValues };
    Kind kind = Kind::kValues;
    ReductionStage stage = ReductionStage::kGradient;  // of kNorms
    uint32_t bucket = 0;                               // of the others
  };
  // Goes with the sum of a block.
  struct BlockSum {
    uint64_t sample_count = 0;  // in it; 0: no gradient was left
    double squared_norm = 0;    // where the job needs it
  };

  // `map`: owners are shards. `tensors` outlives this. Takes all memory.
  StepReduction(Options options, BlockMap map, std::vector<Bucket> buckets,
                const DenseTensors* tensors);

  // The tensors have the job's initial values.
  void Init(int64_t total_clocks);
  // Calls `before` with a block's index in updater() before its state changes
  // in a step. May be null.
  void OnChange(std::function<void(uint32_t local)> before) {
    before_change_ = std::move(before);
  }

  // Calls `replace` with the sum of an own block over `samples` > 0, of which
  // it may make another one before it is sent and applied. A block of which no
  // gradient was left is not among them. May be null. REQUIRES: replicated.
  void ReplaceSums(std::function<void(uint32_t block, uint64_t samples,
                                      absl::Span<float> sum)>
                       replace) {
    replace_sum_ = std::move(replace);
  }

  // `may_change` says whether an own bucket's values may change; false: ask
  // again. Null: they may.
  void GateChanges(std::function<bool(uint32_t bucket)> may_change) {
    may_change_ = std::move(may_change);
  }

  // The device makes all updates, in place of updater(): of the same blocks.
  // Before the first Begin. REQUIRES: an optimizer that the device has, not
  // keeps_values; replicated: float32 on the wire, and `device` has all blocks.
  void UpdateOn(std::unique_ptr<DeviceUpdater> device);
  bool is_on_device() const { return device_ != nullptr; }
  // A device's failure as the other ranks are told it: to them this one is
  // lost.
  static absl::Status OfDevice(const absl::Status& failure,
                               absl::string_view label);

  // --- In place of Init, for a state that was saved between two steps ---

  void SetTotalClocks(int64_t total_clocks);
  // Elements of a block's array from `first` on, of any rank's block; the state
  // of blocks that this rank does not update is left out.
  void Restore(uint32_t block, uint32_t array, size_t first,
               absl::string_view floats);
  void RestoreUpdates(uint32_t block, int64_t updates);
  // Where Restore would put it. REQUIRES: this rank updates the block.
  absl::Span<float> MutableArray(uint32_t block, int array) {
    return updater_.mutable_array(local_[block], array);
  }
  void RestoreSkipped(uint64_t skipped_clocks, int64_t skipped_through) {
    skipped_clocks_ = skipped_clocks;
    skipped_through_ = skipped_through;
  }

  // The form of the values in the tensors. They begin whole.
  enum class Shown {
    kWhole,   // as they are
    kAsSent,  // rounded to the wire type
  };
  // Writes the values that this rank updates to the tensors, unless they are
  // there already. Between steps.
  void Show(Shown shown);
  // One block alone. REQUIRES: this rank updates the block.
  void ShowBlock(uint32_t block, Shown shown);

  // --- One step ---

  // REQUIRES: done(), or the first. `shown`: how the step's values go to the
  // tensors; a step that is skipped writes none.
  void Begin(int64_t clock, Shown shown = Shown::kAsSent);
  // On a device, before Begin; replicated: the step computes with the values
  // there. Errors: the device's.
  absl::Status BeginOnDevice();
  // Once for each rank, this one included, before its gradients.
  void OnFacts(uint32_t rank, const StepFacts& facts);
  // This rank's gradients of a bucket that it owns, where they lie.
  void OnOwnGradient(uint32_t bucket);
  // Those of another rank: the payload of such a bucket.
  void OnGradient(uint32_t rank, uint32_t bucket,
                  std::shared_ptr<const FloatSource> payload);
  // NormCount(rank, stage) numbers.
  void OnNorms(uint32_t rank, ReductionStage stage,
               absl::Span<const double> norms);
  // Replicated: the sum of a bucket of another rank. Errors: InvalidArgument:
  // more samples than there are.
  absl::Status OnSum(uint32_t bucket, absl::Span<const BlockSum> blocks,
                     std::shared_ptr<const FloatSource> payload);
  // Else: such a bucket's values have been written to the tensors.
  void OnValues(uint32_t bucket);

  // Does the next piece of work. None: there is nothing to do, or to send, as
  // long as nothing more is heard.
  std::optional<Outgoing> Next();
  bool done() const;
  // Until the next Begin nobody else puts work into the device's stream: sums
  // go there as they come.
  void UseStream();
  // When done(): makes the update of the step, if it is on a device. Errors are
  // those of the next call that waits for the device.
  void FinishOnDevice();
  // Nothing can go on: a gradient is not finite, and the job fails then.
  const absl::Status& status() const { return status_; }

  // The clock that the state is behind. Unset: it has a part of the open step,
  // or no step has begun.
  std::optional<int64_t> state_clock() const;

  bool has_all_facts() const { return facts_left_ == 0; }
  bool has_gradient(uint32_t rank) const {
    return facts_[rank].has_value() && facts_[rank]->sample_count > 0;
  }
  // Of the open step: the norms of the other owners that come for sure.
  std::optional<ReductionStage> awaited_norms() const;
  // The other ranks' buckets come for sure.
  bool expects_results() const;

  // --- What is sent ---

  size_t NormCount(uint32_t rank, ReductionStage stage) const {
    return map_.shard_blocks(rank).size() * NormsPerBlock(stage);
  }
  std::vector<double> OwnNorms(ReductionStage stage) const;
  std::vector<BlockSum> SumsOf(uint32_t bucket) const;
  // The payload of kSum or kValues, whole. It stays as it is until the next
  // step.
  std::vector<absl::Span<const float>> PayloadOf(uint32_t bucket) const;
  // The whole values of a bucket, in its payload's order. REQUIRES: replicated.
  std::vector<absl::Span<const float>> ValuesOf(uint32_t bucket) const;

  // --- On a device: what the host reads. Else these do nothing ---

  // updater() has the state of the blocks that this rank owns, or of all.
  // Calls OnChange's for them. Errors: the device's.
  absl::Status FetchState(bool own_alone);
  // The tensors have the values. Errors: the device's.
  absl::Status FetchValues();

  // --- Of all steps ---

  // "the gradient of rank 1 (worker:1 at ...)": why the step is not done.
  std::string MissingText() const;
  // The clocks of which nothing was applied, because a value was not finite.
  uint64_t skipped_clocks() const { return skipped_clocks_; }
  // 1 + the latest of them; 0: none.
  int64_t skipped_through() const { return skipped_through_; }
  // Gradients of this rank's blocks that were not finite, by their rank, and
  // all that was found, sums over all ranks too.
  uint64_t found_of(uint32_t rank) const { return found_[rank]; }
  uint64_t found() const { return found_total_; }
  // The gradient that was found last, in words; OK: none was.
  const absl::Status& last_found() const { return last_found_; }
  // Steps that ranks left out while others' were applied.
  uint64_t left_out() const { return left_out_; }
  bool drops_blocks() const {
    return options_.update.on_non_finite == OnNonFinite::kDropBlock;
  }
  bool replicates() const { return options_.replicates; }
  const BlockMap& map() const { return map_; }
  // The state of the blocks that this rank updates; where a device does, that
  // of the latest FetchState.
  const DenseUpdater& updater() const { return updater_; }
  // A block's index in it. REQUIRES: this rank updates the block.
  uint32_t local(uint32_t block) const { return local_[block]; }
  const std::vector<Bucket>& buckets() const { return buckets_; }
  uint64_t state_bytes() const {
    return updater_.value_bytes() + updater_.slot_bytes();
  }
  absl::Status MakeResident(const GoOnCheck& go_on) {
    return updater_.MakeResident(go_on);
  }

 private:
  static constexpr uint32_t kNotHere = ~uint32_t{0};

  bool Owns(uint32_t bucket) const {
    return buckets_[bucket].owner == options_.rank;
  }
  // Blocks wait for a norm over more than the block.
  bool waits() const { return needs_norm_ || lamb_; }
  // With applies_together.
  bool HoldsUpdates() const {
    return options_.applies_together && (unreduced_ > 0 || results_left_ > 0);
  }
  void OnAllFacts();
  void CountGradient(uint32_t bucket);
  // Of the own buckets whose gradients are all there, or of those that can be
  // applied, the one that is needed first; none: there is none that
  // may_take(bucket) allows.
  std::optional<uint32_t> TakeFirst(
      std::vector<uint32_t>* buckets,
      const std::function<bool(uint32_t bucket)>& may_take = nullptr);
  // The first half of a bucket's update; true: its sum is to be sent.
  bool Reduce(uint32_t bucket);
  // All that is to be known of a stage is here.
  bool IsComplete(ReductionStage stage) const;
  // The next stage of the open step, if it is complete. Kind::kNorms: these are
  // to be sent.
  bool ConcludeStage();
  void ConcludeGradient();
  void ConcludeTrust();
  void ComputeLamb(uint32_t block);
  void Apply(uint32_t bucket);
  // Apply of updates on a device; replicated: the sums of one.
  void Stage(uint32_t bucket);
  void ApplyThere(uint32_t bucket);
  // The step of a block with so many samples in its sum.
  DeviceUpdater::BlockStep StepThere(uint32_t block, uint64_t samples);
  void Drop();
  void WillChange(uint32_t block) {
    if (before_change_ != nullptr) before_change_(local_[block]);
  }
  void Note(uint32_t block);
  // Calls visit(block id) for what this rank updates.
  template <typename Visit>
  void ForUpdated(Visit visit) const;
  // How values go to the tensors.
  ElementType TypeOf(Shown shown) const {
    return shown == Shown::kWhole ? ElementType::kFloat32 : options_.wire_type;
  }
  uint64_t SamplesOf(uint32_t block) const;

  const Options options_;
  const BlockMap map_;
  const std::vector<Bucket> buckets_;
  const DenseTensors& tensors_;
  const bool needs_norm_;
  const bool lamb_;
  const std::vector<uint32_t> tensor_of_;  // by block
  std::vector<uint32_t> local_;            // by block: in updater_; kNotHere
  std::vector<std::shared_ptr<const FloatSource>> own_;  // by tensor
  uint32_t owner_count_ = 0;  // ranks that own a block
  DenseUpdater updater_;
  DenseUpdater::Scratch scratch_;
  std::function<void(uint32_t local)> before_change_;
  std::function<bool(uint32_t bucket)> may_change_;
  std::function<void(uint32_t block, uint64_t samples, absl::Span<float> sum)>
      replace_sum_;
  absl::Status status_;
  Shown shown_ = Shown::kWhole;  // in the tensors

  // Where a device makes the updates; else null.
  std::unique_ptr<DeviceUpdater> device_;
  bool is_loaded_ = false;  // the state is there
  bool has_stream_ = false;
  // By block, of the open step: samples in the sum that waits for the update;
  // 0: there is none.
  std::vector<uint64_t> staged_;
  std::vector<uint32_t> uncopied_;  // of these
  bool has_staged_ = false;
  // By index in updater(), which is the device's: as DenseUpdater::updates, and
  // the block.
  std::vector<int64_t> device_updates_;
  std::vector<uint32_t> block_there_;
  bool has_own_state_ = true;  // updater() has the device's
  bool has_all_state_ = true;
  bool has_values_ = true;  // the tensors have them

  // Of the open step.
  int64_t clock_ = -1;
  Shown step_shows_ = Shown::kAsSent;
  std::vector<std::optional<StepFacts>> facts_;  // by rank
  uint32_t facts_left_ = 0;
  uint64_t samples_ = 0;
  uint32_t givers_ = 0;                       // ranks with a gradient
  bool skipped_ = false;                      // nothing of it is applied
  std::vector<std::vector<bool>> delivered_;  // by own bucket, by rank
  std::vector<uint32_t> delivered_count_;     // by bucket
  std::vector<uint32_t> ready_;               // own, all gradients are here
  uint32_t unreduced_ = 0;                    // own buckets
  std::vector<uint32_t> appliable_;
  uint32_t unapplied_ = 0;  // buckets that this rank updates
  bool changed_ = false;    // some state is no longer that before the step
  uint32_t results_left_ = 0;
  std::vector<bool> result_here_;        // by bucket of another rank
  std::vector<BlockSum> sums_;           // by block
  std::vector<double> trust_;            // by block, two each
  std::vector<double> ratios_;           // by tensor
  uint32_t norms_left_[2] = {0, 0};      // by stage: owners still to come
  std::vector<bool> norms_of_[2];        // by stage, by rank
  std::optional<ReductionStage> stage_;  // the one that is waited for
  std::vector<Outgoing> outgoing_;       // norms
  double squared_norm_ = -1;

  uint64_t skipped_clocks_ = 0;
  int64_t skipped_through_ = 0;
  uint64_t left_out_ = 0;
  std::vector<uint64_t> found_;  // by rank
  uint64_t found_total_ = 0;
  absl::Status last_found_;
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_PEERS_STEP_REDUCTION_H_
