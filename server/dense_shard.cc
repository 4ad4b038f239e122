#include "server/dense_shard.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace syncline {

// Each slot starts on a cache line.
size_t DenseShard::Stride(size_t count) {
  constexpr size_t kLine = kCacheLineBytes / sizeof(float);
  return (count + kLine - 1) / kLine * kLine;
}

DenseShard::DenseShard(const Options& options, absl::Span<const size_t> counts)
    : options_(options), blocks_(counts.size()) {
  const int slots = OptimizerSlots(options.optimizer);
  for (size_t i = 0; i < counts.size(); ++i) {
    Block& block = blocks_[i];
    const size_t stride = Stride(counts[i]);
    block.count = counts[i];
    block.memory = AlignedFloats(stride * (1 + slots));
    for (int slot = 0; slot < slots; ++slot) {
      const float initial = InitialSlotValue(options.optimizer, slot);
      float* begin = block.memory.data() + stride * (1 + slot);
      if (initial != 0) std::fill(begin, begin + block.count, initial);
    }
    value_bytes_ += counts[i] * sizeof(float);
    slot_bytes_ += counts[i] * sizeof(float) * slots;
  }
}

uint64_t DenseShard::MemoryBytes(const OptimizerParams& optimizer,
                                 absl::Span<const size_t> counts) {
  const int slots = OptimizerSlots(optimizer);
  uint64_t bytes = 0;
  for (const size_t count : counts) {
    bytes += sizeof(Block) + Stride(count) * sizeof(float) * (1 + slots);
  }
  return bytes;
}

void DenseShard::Init(BlockIndex index, const FloatSource& values,
                      size_t first) {
  Block& block = blocks_[index];
  values.CopyTo(first, block.count, block.memory.data());
}

void DenseShard::Keep(BlockIndex index, uint32_t rank,
                      std::shared_ptr<const FloatSource> gradient,
                      size_t first) {
  std::vector<Kept>& kept = blocks_[index].kept;
  const auto behind =
      std::find_if(kept.begin(), kept.end(),
                   [&](const Kept& other) { return other.rank > rank; });
  kept.insert(behind, Kept{rank, std::move(gradient), first});
}

const float* DenseShard::SumPiece(const Block& block, size_t begin,
                                  size_t count, Scratch* scratch) {
  float* sum = scratch->sum.data();
  if (block.kept.empty()) {
    std::fill(sum, sum + count, 0.0f);
    return sum;
  }
  const Kept& lowest = block.kept.front();
  lowest.gradient->CopyTo(lowest.first + begin, count, sum);
  for (size_t i = 1; i < block.kept.size(); ++i) {
    const Kept& next = block.kept[i];
    next.gradient->CopyTo(next.first + begin, count, scratch->addend.data());
    AddTo(scratch->addend.data(), sum, count);
  }
  return sum;
}

double DenseShard::Fold(BlockIndex index, uint64_t sample_count,
                        Scratch* scratch) {
  Block& block = blocks_[index];
  if (block.folded.size() == 0) block.folded = AlignedFloats(block.count);
  const float scale = static_cast<float>(1.0 / sample_count);
  double squares = 0;
  for (size_t begin = 0; begin < block.count; begin += kPieceElements) {
    const size_t count = std::min(kPieceElements, block.count - begin);
    const float* sum = SumPiece(block, begin, count, scratch);
    std::copy(sum, sum + count, block.folded.data() + begin);
    squares = AddSquares(squares, sum, scale, count);
  }
  block.kept.clear();
  block.is_folded = true;
  return squares;
}

float DenseShard::GradientScale(uint64_t sample_count,
                                double squared_norm) const {
  double scale = 1.0 / static_cast<double>(sample_count);
  if (squared_norm > options_.clip_norm * options_.clip_norm) {
    scale *= options_.clip_norm / std::sqrt(squared_norm);
  }
  return static_cast<float>(scale);
}

template <typename Visit>
void DenseShard::ForEachPiece(Block* block, Scratch* scratch, Visit visit) {
  const int slot_count = OptimizerSlots(options_.optimizer);
  for (size_t begin = 0; begin < block->count; begin += kPieceElements) {
    const size_t count = std::min(kPieceElements, block->count - begin);
    const float* gradient = block->is_folded
                                ? block->folded.data() + begin
                                : SumPiece(*block, begin, count, scratch);
    float* slots[kOptimizerSlotsMax] = {};
    for (int slot = 0; slot < slot_count; ++slot) {
      slots[slot] = Slot(block, slot) + begin;
    }
    visit(gradient, block->memory.data() + begin, slots, count);
  }
  block->kept.clear();
  block->is_folded = false;
}

void DenseShard::Apply(BlockIndex index, int64_t clock, uint64_t sample_count,
                       double squared_norm, Scratch* scratch) {
  Block& block = blocks_[index];
  const OptimizerStep step = {
      .learning_rate = LearningRateAt(clock),
      .gradient_scale = GradientScale(sample_count, squared_norm),
      .t = ++block.updates};
  ForEachPiece(&block, scratch,
               [&](const float* gradient, float* value, float* const* slots,
                   size_t count) {
                 ApplyOptimizer(options_.optimizer, step, gradient, value,
                                slots, count);
               });
}

LambNorms DenseShard::Advance(BlockIndex index, uint64_t sample_count,
                              double squared_norm, Scratch* scratch) {
  Block& block = blocks_[index];
  const OptimizerStep step = {
      .gradient_scale = GradientScale(sample_count, squared_norm),
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

void DenseShard::Finish(BlockIndex index, int64_t clock, double trust_ratio) {
  Block& block = blocks_[index];
  const OptimizerStep step = {.learning_rate = LearningRateAt(clock),
                              .t = block.updates};
  ApplyLamb(options_.optimizer, step, trust_ratio, block.memory.data(),
            Slot(&block, 0), Slot(&block, 1), block.count);
}

}  // namespace syncline
