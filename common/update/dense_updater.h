#ifndef SYNCLINE_COMMON_UPDATE_DENSE_UPDATER_H_
#define SYNCLINE_COMMON_UPDATE_DENSE_UPDATER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/base/aligned_buffer.h"
#include "common/system/huge_floats.h"
#include "common/system/memory_claim.h"
#include "common/update/float_source.h"
#include "common/update/step_rule.h"
#include "kernels/optimizer/finite.h"
#include "kernels/optimizer/lamb.h"
#include "kernels/optimizer/optimizer.h"

namespace syncline {

// Reduces and updates the dense blocks that one process owns of a job: a ps its
// shard's, or a worker its part where workers reduce among themselves. It says
// how gradients are summed and applied; its owner says when, and brings the
// gradients. So the bits of a result do not depend on who owns a block.
//
// Order of the sum   Gradients of a block are summed by rank, ((g0 + g1) + g2),
//                    in float32, whatever the order in which they came.
// Samples            The sum is divided by the number of samples of all
//                    workers, also of those without a gradient for the block.
// Clipping           By the norm of the whole job's mean gradient: fp64 sums of
//                    squares by block in element order, which the owners add up
//                    in the blocks' order (NormReducer).
// Running means      Blocks without an optimizer: MakeRunningMean.
// LAMB               Two halves, with the norms of each tensor between them,
//                    reduced in the same way.
// State              Values and optimizer slots of each block, and the number
//                    of its updates.
//
// Gradients that are not finite, by policy:
// - kFailJob: the sum is checked piece by piece while it is in the first-level
//   cache. It is applied all the same, because the job ends.
// - kDropBlock: the sum is checked before it is applied. The check brings a
//   block, which is at most 1 MiB, into the second-level cache. Gradients that
//   are not finite are dropped, and their samples do not count for the block.
//   If no gradient is left, the block is not updated.
// - kSkipStep: the norm of ReduceGradients is NaN or infinite, and
//   DropGradients follows. Where gradients are not reduced: as kDropBlock.
//
// One clock, for each block that some worker has a gradient for:
//
//   BufferGradient of each of these workers
//   the job needs no norm:  Apply
//   clip_norm, kSkipStep:   ReduceGradients; when the owners' norms are added
//                           up: Apply, or DropGradients if kSkipStep and the
//                           sum is not finite
//   kLamb, in place of      ComputeLambUpdate; when the owners' norms are added
//   Apply:                  up by tensor: ApplyLambUpdate
//
// A block without gradient has norms of 0 and is not touched.
//
// Memory: gradients stay where they came, in a FloatSource, until their block
// is applied. Then they are summed in the same pass that applies them. So a
// lone worker's gradient is never copied, and n workers take the memory of
// n - 1 gradients. Where gradients are reduced, one copy of each block.
//
// Threads: every method touches one block. Calls for different blocks may run
// at the same time, each with a Scratch of its own; those for one block may
// not. Nothing blocks.
class DenseUpdater {
 public:
  struct Options {
    OptimizerParams optimizer;
    StepRule rule;
    OnNonFinite on_non_finite = OnNonFinite::kFailJob;
  };

  // A gradient, or the sum of several, that is not finite.
  struct NonFinite {
    static constexpr uint32_t kSum = ~uint32_t{0};
    uint32_t rank = kSum;
    size_t element = 0;  // of the block, the first
  };

  // Memory that one thread works in. Its contents do not matter between calls,
  // except `non_finite`, which is what the last ReduceGradients, SumGradients,
  // Apply or ComputeLambUpdate found.
  struct Scratch {
    Scratch() : sum(kPieceElements), addend(kPieceElements) {}
    AlignedFloats sum;
    AlignedFloats addend;
    std::vector<NonFinite> non_finite;
  };

  // `counts`: elements of each block, > 0. Allocates and touches all memory.
  DenseUpdater(const Options& options, absl::Span<const size_t> counts);

  // Bytes that the blocks take; `with_reduced`: with a reduced
  // gradient of each block.
  static uint64_t MemoryBytes(const OptimizerParams& optimizer,
                              absl::Span<const size_t> counts,
                              bool with_reduced);

  // For a schedule that ends with the job. Before the first Apply.
  void SetTotalClocks(int64_t clocks) {
    options_.rule.learning_rate.total_clocks = clocks;
  }

  // For regimes that come while the job runs. Before the first Apply;
  // `regimes` outlives this.
  void UseRegimes(const LiveRegimes* regimes) { options_.rule.live = regimes; }

  // The block is a running mean of what is pushed, not a parameter: it is
  // summed as gradients are, and applied by AverageIn
  // (kernels/optimizer/optimizer.h) with no part in norms, clipping and
  // learning rate. A value that is not finite is treated as in a gradient. Call
  // it before the first Apply.
  void MakeRunningMean(uint32_t block, float momentum) {
    blocks_[block].momentum = momentum;
  }

  // Takes the elements of `values` from `first` on as the block's values.
  void Init(uint32_t block, const FloatSource& values, size_t first);

  // Buffers the gradient of the summed loss that starts at element `first`,
  // over so many of the clock's samples.
  void BufferGradient(uint32_t block, uint32_t rank,
                      std::shared_ptr<const FloatSource> gradient, size_t first,
                      uint64_t sample_count = 0);

  // Releases the gradients.
  void DropGradients(uint32_t block);
  // Releases the buffered gradient of one worker, if there is one.
  void DropGradientOf(uint32_t block, uint32_t rank);

  // Sums the buffered gradients into a buffer of the block's own and releases
  // them. Returns the squared L2 norm of the mean gradient, fp64 in element
  // order; of a running mean 0, if it is finite.
  double ReduceGradients(uint32_t block, uint64_t sample_count,
                         Scratch* scratch);

  // The same without the norm, for owners that hand the sum to others.
  void SumGradients(uint32_t block, uint64_t sample_count, Scratch* scratch);
  // The sum that ReduceGradients or SumGradients has made last, and the samples
  // that are in it; 0: no gradient was left, and the sum means nothing. It
  // stays as it is until the next of these calls for the block.
  absl::Span<const float> reduced(uint32_t block) const {
    return {blocks_[block].reduced.data(), blocks_[block].reduced.size()};
  }
  // For owners that send less than the sum, and apply what they send.
  absl::Span<float> mutable_reduced(uint32_t block) {
    return blocks_[block].reduced.span();
  }
  uint64_t reduced_samples(uint32_t block) const {
    return blocks_[block].reduced_samples;
  }

  // One optimizer step with the buffered (or reduced) gradients: their sum
  // divided by `sample_count` > 0, scaled down to clip_norm where
  // `squared_norm` (of the mean over all owners; negative: unknown) exceeds it,
  // at the learning rate of `clock`. Releases the gradients. REQUIRES: not
  // kLamb.
  void Apply(uint32_t block, int64_t clock, uint64_t sample_count,
             double squared_norm, Scratch* scratch);

  // In place of Apply, for owners that make the update elsewhere: writes the
  // sum that Apply would use to `to`, checked as there, and releases the
  // gradients. Returns the samples in it; 0: no gradient is left, and `to`
  // means nothing.
  uint64_t TakeSum(uint32_t block, uint64_t sample_count, float* to,
                   Scratch* scratch);

  // kLamb's step has two halves. ComputeLambUpdate replaces Apply and returns
  // the block's part of its tensor's norms. ApplyLambUpdate follows, with the
  // trust ratio that the norms of the whole tensor give.
  LambNorms ComputeLambUpdate(uint32_t block, uint64_t sample_count,
                              double squared_norm, Scratch* scratch);
  void ApplyLambUpdate(uint32_t block, int64_t clock, double trust_ratio);

  // The learning rate and the scale of gradients, which all steps of a clock
  // share, those of tables included.
  const StepRule& rule() const { return options_.rule; }

  // Takes the memory of values and slots from the system before they are
  // needed. REQUIRES: no other call runs. Errors: ResourceExhausted: it is not
  // there; those of `go_on`, which is asked at least every 64 MiB.
  absl::Status MakeResident(const GoOnCheck& go_on);

  absl::Span<const float> values(uint32_t block) const {
    return {blocks_[block].memory, blocks_[block].count};
  }
  // The state of a block: array 0 has its values, the next ones have the slots
  // of the optimizer. REQUIRES: array < arrays().
  int arrays() const { return 1 + OptimizerSlots(options_.optimizer); }
  absl::Span<const float> array(uint32_t block, int array) const;
  absl::Span<float> mutable_array(uint32_t block, int array);
  // How often the block was updated.
  int64_t updates(uint32_t block) const { return blocks_[block].updates; }
  void SetUpdates(uint32_t block, int64_t updates) {
    blocks_[block].updates = updates;
  }
  // True if no gradient of the block waits to be applied.
  bool IsSettled(uint32_t block) const {
    return blocks_[block].buffered.empty() && !blocks_[block].is_reduced;
  }
  uint32_t block_count() const { return static_cast<uint32_t>(blocks_.size()); }
  // Keeps the arrays' memory, for who still reads it when this is gone.
  std::shared_ptr<const void> memory() const { return memory_; }
  uint64_t value_bytes() const { return value_bytes_; }
  uint64_t slot_bytes() const { return slot_bytes_; }

  // A piece of this size is gathered, summed and applied while it is in the
  // first-level cache.
  static constexpr size_t kPieceElements = 2048;

 private:
  struct BufferedGradient {
    uint32_t rank = 0;
    std::shared_ptr<const FloatSource> gradient;
    size_t first = 0;
    uint64_t sample_count = 0;
  };
  struct Block {
    size_t count = 0;
    float* memory = nullptr;  // in memory_: values, then each slot
    std::vector<BufferedGradient> buffered;  // by rank
    AlignedFloats reduced;  // where gradients are reduced; kept for reuse
    bool is_reduced = false;
    uint64_t reduced_samples = 0;   // 0: nothing was left
    bool has_lamb_update = false;   // and not finished
    std::optional<float> momentum;  // of a running mean
    int64_t updates = 0;
  };

  static size_t Stride(size_t count);
  // Sums the buffered gradients into block->reduced, and calls visit(sum,
  // count) for each piece of it. False: no gradient is left.
  template <typename Visit>
  bool Reduce(Block* block, uint64_t sample_count, Scratch* scratch,
              Visit visit) const;
  // Calls visit(gradient, value, slots, count) for each piece of the block,
  // with the sum of its gradients, and releases them.
  template <typename Visit>
  void ForEachPiece(Block* block, Scratch* scratch, Visit visit);
  static float* Slot(Block* block, int slot) {
    return block->memory + Stride(block->count) * (1 + slot);
  }
  // Which of the buffered gradients are not finite, or their sum.
  static std::vector<NonFinite> Inspect(const Block& block, Scratch* scratch);
  // The first element of the buffered gradients' sum that is not; count: none.
  static size_t FirstNonFiniteSum(const Block& block, Scratch* scratch);
  // Drops the gradients that are not finite. Returns the number of samples of
  // the others; 0: no gradient is left.
  static uint64_t DropNonFinite(Block* block, uint64_t sample_count,
                                Scratch* scratch);
  // The number of samples whose gradients are to be applied; 0: none.
  uint64_t Begin(Block* block, uint64_t sample_count, Scratch* scratch) const;
  // Apply of a running mean.
  void Average(Block* block, uint64_t sample_count, Scratch* scratch);
  // Sum of the buffered gradients over a piece.
  static const float* SumPiece(const Block& block, size_t begin, size_t count,
                               Scratch* scratch);

  Options options_;
  std::vector<Block> blocks_;
  // Of all blocks, each 64-byte aligned.
  std::shared_ptr<HugeFloats> memory_;
  uint64_t value_bytes_ = 0;
  uint64_t slot_bytes_ = 0;
};

}  // namespace syncline

#endif  // SYNCLINE_COMMON_UPDATE_DENSE_UPDATER_H_
