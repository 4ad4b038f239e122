#ifndef SYNCLINE_SERVER_DENSE_DENSE_SHARD_H_
#define SYNCLINE_SERVER_DENSE_DENSE_SHARD_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/base/aligned_buffer.h"
#include "common/system/memory_claim.h"
#include "kernels/optimizer/finite.h"
#include "kernels/optimizer/lamb.h"
#include "kernels/optimizer/learning_rate.h"
#include "kernels/optimizer/optimizer.h"
#include "server/consistency/shard_call.h"

namespace syncline::ps {

// Float32 values in memory of its owner, in pieces and unaligned: the payload
// of a call. Shared with its owner; thread-compatible.
class FloatSource {
 public:
  virtual ~FloatSource() = default;
  // Copies the elements [first, first + count).
  virtual void CopyTo(size_t first, size_t count, float* out) const = 0;
};

// The dense parameters of one job on one ps: blocks of values, each with its
// optimizer slots right behind it. Says how gradients are summed and
// applied; the consistency controller says when.
//
// Every method touches one block; calls for different blocks may run at the
// same time, those for one block may not: each block belongs to one lane.
//
// Gradients stay in the memory in which they arrived until their block is
// applied. Then they are summed in rank order, ((g0 + g1) + g2), in the same
// pass that applies them. So a lone worker's gradient is never copied, and n
// workers take the memory of n - 1 gradients.
class DenseShard {
 public:
  struct Options {
    OptimizerParams optimizer;
    LearningRate learning_rate;
    double clip_norm = 0;  // 0: off
    OnNonFinite on_non_finite = OnNonFinite::kFailJob;
  };

  // A gradient, or the sum of several, that is not finite.
  struct NonFinite {
    static constexpr uint32_t kSum = ~uint32_t{0};
    uint32_t rank = kSum;
    size_t element = 0;  // of the block, the first
  };

  // Memory that one lane works in. Its contents do not matter between calls,
  // except `non_finite`, which is what the last ReduceGradients, Apply or
  // ComputeLambUpdate found.
  struct Scratch {
    Scratch() : sum(kPieceElements), addend(kPieceElements) {}
    AlignedFloats sum;
    AlignedFloats addend;
    std::vector<NonFinite> non_finite;
  };

  // `counts`: elements of each block, > 0. Allocates and touches all memory.
  DenseShard(const Options& options, absl::Span<const size_t> counts);

  // Bytes that a shard with these blocks takes; `with_reduced`: with a reduced
  // gradient of each block.
  static uint64_t MemoryBytes(const OptimizerParams& optimizer,
                              absl::Span<const size_t> counts,
                              bool with_reduced);

  // For a schedule that ends with the job. Before the first Apply.
  void SetTotalClocks(int64_t clocks) {
    options_.learning_rate.total_clocks = clocks;
  }

  // The block is a running mean of what is pushed, not a parameter: it is
  // summed as gradients are, and applied by AverageIn
  // (kernels/optimizer/optimizer.h) with no part in norms, clipping and
  // learning rate. A value that is not finite is treated as in a gradient. Call
  // it before the first Apply.
  void MakeRunningMean(BlockIndex block, float momentum) {
    blocks_[block].momentum = momentum;
  }

  // Takes the elements of `values` from `first` on as the block's values.
  void Init(BlockIndex block, const FloatSource& values, size_t first);

  // Buffers the gradient of the summed loss that starts at element `first`,
  // over so many of the clock's samples.
  void BufferGradient(BlockIndex block, uint32_t rank,
                      std::shared_ptr<const FloatSource> gradient, size_t first,
                      uint64_t sample_count = 0);

  // Gradients that are not finite, by policy:
  // - kFailJob: the sum is checked piece by piece while it is in the
  //   first-level cache. It is applied all the same, because the job ends.
  // - kDropBlock: the sum is checked before it is applied. The check brings a
  //   block, which is at most 1 MiB, into the second-level cache. Gradients
  //   that are not finite are dropped, and their samples do not count for the
  //   block. If no gradient is left, the block is not updated.
  // - kSkipStep: the norm of ReduceGradients is NaN or infinite, and
  //   DropGradients follows. Where gradients are not reduced: as kDropBlock.

  // Releases the gradients.
  void DropGradients(BlockIndex block);

  // Sums the buffered gradients into a buffer of the block's own and releases
  // them. Returns the squared L2 norm of the mean gradient, fp64 in element
  // order; of a running mean 0, if it is finite.
  double ReduceGradients(BlockIndex block, uint64_t sample_count,
                         Scratch* scratch);

  // One optimizer step with the buffered (or reduced) gradients: their sum
  // divided by `sample_count` > 0, scaled down to clip_norm where
  // `squared_norm` (of the mean over all shards; negative: unknown) exceeds it,
  // at the learning rate of `clock`. Releases the gradients. REQUIRES: not
  // kLamb.
  void Apply(BlockIndex block, int64_t clock, uint64_t sample_count,
             double squared_norm, Scratch* scratch);

  // kLamb's step has two halves. ComputeLambUpdate replaces Apply and returns
  // the block's part of its tensor's norms. ApplyLambUpdate follows, with the
  // trust ratio that the norms of the whole tensor give.
  LambNorms ComputeLambUpdate(BlockIndex block, uint64_t sample_count,
                              double squared_norm, Scratch* scratch);
  void ApplyLambUpdate(BlockIndex block, int64_t clock, double trust_ratio);

  // Factor that turns a summed gradient into the mean, scaled down as Apply
  // says. It and the learning rate are the same for all of a clock's steps,
  // those of tables included.
  float GradientScale(uint64_t sample_count, double squared_norm) const;
  float LearningRateAt(int64_t clock) const {
    return static_cast<float>(options_.learning_rate.At(clock));
  }

  // Takes the memory of values and slots from the system before they are
  // needed. REQUIRES: no other call runs. Errors: ResourceExhausted: it is not
  // there; those of `go_on`, which is asked at least every 64 MiB.
  absl::Status MakeResident(const GoOnCheck& go_on);

  absl::Span<const float> values(BlockIndex block) const {
    return {blocks_[block].memory.data(), blocks_[block].count};
  }
  uint32_t block_count() const { return static_cast<uint32_t>(blocks_.size()); }
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
    AlignedFloats memory;  // values, then each slot, 64-byte aligned
    std::vector<BufferedGradient> buffered;  // by rank
    AlignedFloats reduced;  // where gradients are reduced; kept for reuse
    bool is_reduced = false;
    uint64_t reduced_samples = 0;   // 0: nothing was left
    bool has_lamb_update = false;   // and not finished
    std::optional<float> momentum;  // of a running mean
    int64_t updates = 0;
  };

  static size_t Stride(size_t count);
  // Calls visit(gradient, value, slots, count) for each piece of the block,
  // with the sum of its gradients, and releases them.
  template <typename Visit>
  void ForEachPiece(Block* block, Scratch* scratch, Visit visit);
  static float* Slot(Block* block, int slot) {
    return block->memory.data() + Stride(block->count) * (1 + slot);
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
  uint64_t value_bytes_ = 0;
  uint64_t slot_bytes_ = 0;
};

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_DENSE_DENSE_SHARD_H_
