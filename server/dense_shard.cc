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
  const int slots = OptimizerSlots(options.optimizer.kind);
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

uint64_t DenseShard::MemoryBytes(OptimizerKind kind,
                                 absl::Span<const size_t> counts) {
  uint64_t bytes = 0;
  for (const size_t count : counts) {
    bytes += sizeof(Block) +
             Stride(count) * sizeof(float) * (1 + OptimizerSlots(kind));
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

void DenseShard::Apply(BlockIndex index, int64_t clock, uint64_t sample_count,
                       double squared_norm, Scratch* scratch) {
  Block& block = blocks_[index];
  const OptimizerStep step = {
      .learning_rate = LearningRateAt(clock),
      .gradient_scale = GradientScale(sample_count, squared_norm),
      .t = ++block.updates};

  const int slots = OptimizerSlots(options_.optimizer.kind);
  const size_t stride = Stride(block.count);
  float* value = block.memory.data();
  float* slot0 = slots > 0 ? value + stride : nullptr;
  float* slot1 = slots > 1 ? value + 2 * stride : nullptr;
  for (size_t begin = 0; begin < block.count; begin += kPieceElements) {
    const size_t count = std::min(kPieceElements, block.count - begin);
    const float* gradient = block.is_folded
                                ? block.folded.data() + begin
                                : SumPiece(block, begin, count, scratch);
    ApplyOptimizer(options_.optimizer, step, gradient, value + begin,
                   slots > 0 ? slot0 + begin : nullptr,
                   slots > 1 ? slot1 + begin : nullptr, count);
  }
  block.kept.clear();
  block.is_folded = false;
}

}  // namespace syncline
