#include "common/update/dense_updater.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/base/status_macros.h"
#include "common/system/memory_claim.h"

namespace syncline {

// Each slot starts on a cache line.
size_t DenseUpdater::Stride(size_t count) {
  constexpr size_t kLine = kCacheLineBytes / sizeof(float);
  return (count + kLine - 1) / kLine * kLine;
}

DenseUpdater::DenseUpdater(const Options& options,
                           absl::Span<const size_t> counts)
    : options_(options), blocks_(counts.size()) {
  const int slots = OptimizerSlots(options.optimizer);
  size_t floats = 0;
  for (const size_t count : counts) floats += Stride(count) * (1 + slots);
  memory_ = std::make_shared<HugeFloats>(floats);
  float* next = memory_->data();
  for (size_t i = 0; i < counts.size(); ++i) {
    Block& block = blocks_[i];
    const size_t stride = Stride(counts[i]);
    block.count = counts[i];
    block.memory = next;
    next += stride * (1 + slots);
    for (int slot = 0; slot < slots; ++slot) {
      const float initial = InitialSlotValue(options.optimizer, slot);
      float* begin = block.memory + stride * (1 + slot);
      if (initial != 0) std::fill(begin, begin + block.count, initial);
    }
    value_bytes_ += counts[i] * sizeof(float);
    slot_bytes_ += counts[i] * sizeof(float) * slots;
  }
}

uint64_t DenseUpdater::MemoryBytes(const OptimizerParams& optimizer,
                                   absl::Span<const size_t> counts,
                                   bool with_reduced) {
  const int copies = 1 + OptimizerSlots(optimizer) + (with_reduced ? 1 : 0);
  uint64_t bytes = 0;
  for (const size_t count : counts) {
    bytes += sizeof(Block) + Stride(count) * sizeof(float) * copies;
  }
  return bytes;
}

absl::Status DenseUpdater::MakeResident(const GoOnCheck& go_on) {
  return TouchMemory("parameters and optimizer state",
                     {reinterpret_cast<char*>(memory_->data()),
                      memory_->size() * sizeof(float)},
                     go_on);
}

absl::Span<const float> DenseUpdater::array(uint32_t block, int array) const {
  const Block& of = blocks_[block];
  return {of.memory + Stride(of.count) * array, of.count};
}

absl::Span<float> DenseUpdater::mutable_array(uint32_t block, int array) {
  Block& of = blocks_[block];
  return {of.memory + Stride(of.count) * array, of.count};
}

void DenseUpdater::Init(uint32_t index, const FloatSource& values,
                        size_t first) {
  Block& block = blocks_[index];
  values.CopyTo(first, block.count, block.memory);
}

void DenseUpdater::BufferGradient(uint32_t index, uint32_t rank,
                                  std::shared_ptr<const FloatSource> gradient,
                                  size_t first, uint64_t sample_count) {
  std::vector<BufferedGradient>& buffered = blocks_[index].buffered;
  const auto behind = std::find_if(
      buffered.begin(), buffered.end(),
      [&](const BufferedGradient& other) { return other.rank > rank; });
  buffered.insert(
      behind, BufferedGradient{rank, std::move(gradient), first, sample_count});
}

const float* DenseUpdater::SumPiece(const Block& block, size_t begin,
                                    size_t count, Scratch* scratch) {
  float* sum = scratch->sum.data();
  if (block.buffered.empty()) {
    std::fill(sum, sum + count, 0.0f);
    return sum;
  }
  const BufferedGradient& lowest = block.buffered.front();
  lowest.gradient->CopyTo(lowest.first + begin, count, sum);
  for (size_t i = 1; i < block.buffered.size(); ++i) {
    const BufferedGradient& next = block.buffered[i];
    next.gradient->CopyTo(next.first + begin, count, scratch->addend.data());
    AddTo(scratch->addend.data(), sum, count);
  }
  return sum;
}

size_t DenseUpdater::FirstNonFiniteSum(const Block& block, Scratch* scratch) {
  for (size_t begin = 0; begin < block.count; begin += kPieceElements) {
    const size_t count = std::min(kPieceElements, block.count - begin);
    const float* sum = SumPiece(block, begin, count, scratch);
    if (!AllFinite(sum, count)) return begin + FirstNonFinite(sum, count);
  }
  return block.count;
}

std::vector<DenseUpdater::NonFinite> DenseUpdater::Inspect(const Block& block,
                                                           Scratch* scratch) {
  std::vector<NonFinite> found;
  Block alone;
  alone.count = block.count;
  for (const BufferedGradient& gradient : block.buffered) {
    alone.buffered = {gradient};
    const size_t element = FirstNonFiniteSum(alone, scratch);
    if (element < block.count) found.push_back({gradient.rank, element});
  }
  if (!found.empty()) return found;
  const size_t element = FirstNonFiniteSum(block, scratch);
  if (element < block.count) found.push_back({NonFinite::kSum, element});
  return found;
}

uint64_t DenseUpdater::DropNonFinite(Block* block, uint64_t sample_count,
                                     Scratch* scratch) {
  // The sum is checked first; single gradients only if the sum is not finite.
  if (FirstNonFiniteSum(*block, scratch) == block->count) return sample_count;
  scratch->non_finite = Inspect(*block, scratch);
  for (const NonFinite& found : scratch->non_finite) {
    const auto gradient = std::find_if(
        block->buffered.begin(), block->buffered.end(),
        [&](const BufferedGradient& k) { return k.rank == found.rank; });
    if (gradient == block->buffered.end()) continue;
    sample_count -= gradient->sample_count;
    block->buffered.erase(gradient);
  }
  if (FirstNonFiniteSum(*block, scratch) < block->count)
    block->buffered.clear();
  return block->buffered.empty() ? 0 : sample_count;
}

void DenseUpdater::DropGradients(uint32_t index) {
  blocks_[index].buffered.clear();
  blocks_[index].is_reduced = false;
}

void DenseUpdater::DropGradientOf(uint32_t index, uint32_t rank) {
  std::vector<BufferedGradient>& buffered = blocks_[index].buffered;
  std::erase_if(buffered, [rank](const BufferedGradient& gradient) {
    return gradient.rank == rank;
  });
}

template <typename Visit>
bool DenseUpdater::Reduce(Block* block, uint64_t sample_count, Scratch* scratch,
                          Visit visit) const {
  scratch->non_finite.clear();
  if (options_.on_non_finite == OnNonFinite::kDropBlock) {
    sample_count = DropNonFinite(block, sample_count, scratch);
  }
  block->is_reduced = true;
  block->reduced_samples = sample_count;
  if (block->reduced.size() == 0) block->reduced = AlignedFloats(block->count);
  if (sample_count == 0) return false;
  for (size_t begin = 0; begin < block->count; begin += kPieceElements) {
    const size_t count = std::min(kPieceElements, block->count - begin);
    const float* sum = SumPiece(*block, begin, count, scratch);
    std::copy(sum, sum + count, block->reduced.data() + begin);
    visit(sum, count);
  }
  return true;
}

double DenseUpdater::ReduceGradients(uint32_t index, uint64_t sample_count,
                                     Scratch* scratch) {
  Block& block = blocks_[index];
  double squares = 0;
  const bool any = Reduce(
      &block, sample_count, scratch, [&](const float* sum, size_t count) {
        const float scale =
            options_.rule.GradientScale(block.reduced_samples, -1);
        squares = AddSquares(squares, sum, scale, count);
      });
  if (!any) return 0;
  if (!std::isfinite(squares)) scratch->non_finite = Inspect(block, scratch);
  block.buffered.clear();
  const bool counts = !block.momentum.has_value() || !std::isfinite(squares);
  return counts ? squares : 0;
}

void DenseUpdater::SumGradients(uint32_t index, uint64_t sample_count,
                                Scratch* scratch) {
  Block& block = blocks_[index];
  bool finite = true;
  Reduce(&block, sample_count, scratch, [&](const float* sum, size_t count) {
    finite &= AllFinite(sum, count);
  });
  if (!finite) scratch->non_finite = Inspect(block, scratch);
  block.buffered.clear();
}

template <typename Visit>
void DenseUpdater::ForEachPiece(Block* block, Scratch* scratch, Visit visit) {
  const int slot_count = OptimizerSlots(options_.optimizer);
  bool finite = true;
  for (size_t begin = 0; begin < block->count; begin += kPieceElements) {
    const size_t count = std::min(kPieceElements, block->count - begin);
    const float* gradient = block->is_reduced
                                ? block->reduced.data() + begin
                                : SumPiece(*block, begin, count, scratch);
    float* slots[kOptimizerSlotsMax] = {};
    for (int slot = 0; slot < slot_count; ++slot) {
      slots[slot] = Slot(block, slot) + begin;
    }
    finite &= block->is_reduced || AllFinite(gradient, count);
    visit(gradient, block->memory + begin, slots, count);
  }
  if (!finite) scratch->non_finite = Inspect(*block, scratch);
  block->buffered.clear();
  block->is_reduced = false;
}

uint64_t DenseUpdater::Begin(Block* block, uint64_t sample_count,
                             Scratch* scratch) const {
  scratch->non_finite.clear();
  if (block->is_reduced) {
    sample_count = block->reduced_samples;
  } else if (options_.on_non_finite != OnNonFinite::kFailJob) {
    sample_count = DropNonFinite(block, sample_count, scratch);
  }
  if (sample_count > 0) return sample_count;
  block->buffered.clear();
  block->is_reduced = false;
  return 0;
}

void DenseUpdater::Average(Block* block, uint64_t sample_count,
                           Scratch* scratch) {
  const float scale = options_.rule.GradientScale(sample_count, -1);
  ForEachPiece(
      block, scratch,
      [&](const float* sum, float* value, float* const*, size_t count) {
        AverageIn(*block->momentum, scale, sum, value, count);
      });
}

void DenseUpdater::Apply(uint32_t index, int64_t clock, uint64_t sample_count,
                         double squared_norm, Scratch* scratch) {
  Block& block = blocks_[index];
  sample_count = Begin(&block, sample_count, scratch);
  if (sample_count == 0) return;
  if (block.momentum.has_value()) return Average(&block, sample_count, scratch);
  OptimizerStep step = options_.rule.StepAt(clock, sample_count, squared_norm);
  step.t = ++block.updates;
  ForEachPiece(&block, scratch,
               [&](const float* gradient, float* value, float* const* slots,
                   size_t count) {
                 ApplyOptimizer(options_.optimizer, step, gradient, value,
                                slots, count);
               });
}

uint64_t DenseUpdater::TakeSum(uint32_t index, uint64_t sample_count, float* to,
                               Scratch* scratch) {
  Block& block = blocks_[index];
  sample_count = Begin(&block, sample_count, scratch);
  if (sample_count == 0) return 0;
  ForEachPiece(&block, scratch,
               [&](const float* sum, float*, float* const*, size_t count) {
                 to = std::copy(sum, sum + count, to);
               });
  return sample_count;
}

LambNorms DenseUpdater::ComputeLambUpdate(uint32_t index, uint64_t sample_count,
                                          double squared_norm,
                                          Scratch* scratch) {
  Block& block = blocks_[index];
  sample_count = Begin(&block, sample_count, scratch);
  if (sample_count > 0 && block.momentum.has_value()) {
    Average(&block, sample_count, scratch);
    sample_count = 0;  // nothing is left to finish
  }
  block.has_lamb_update = sample_count > 0;
  if (!block.has_lamb_update) return {};
  const OptimizerStep step = {
      .gradient_scale = options_.rule.GradientScale(sample_count, squared_norm),
      .t = ++block.updates};
  LambNorms norms;
  ForEachPiece(&block, scratch,
               [&](const float* gradient, float* value, float* const* slots,
                   size_t count) {
                 AdvanceLamb(options_.optimizer, step, gradient, value,
                             slots[0], slots[1], count, &norms);
               });
  return norms;
}

void DenseUpdater::ApplyLambUpdate(uint32_t index, int64_t clock,
                                   double trust_ratio) {
  Block& block = blocks_[index];
  if (!block.has_lamb_update) return;
  const OptimizerStep step = {.learning_rate = options_.rule.RateAt(clock),
                              .t = block.updates};
  ApplyLamb(options_.optimizer, step, trust_ratio, block.memory,
            Slot(&block, 0), Slot(&block, 1), block.count);
}

}  // namespace syncline
