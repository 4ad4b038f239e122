#include "worker/exchange/gradient_compressor.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "absl/algorithm/container.h"
#include "common/base/check.h"
#include "common/base/random.h"
#include "kernels/optimizer/finite.h"

namespace syncline::worker {
namespace {

using Kind = GradientCompression::Kind;

// Of a float without its sign, as an integer: infinity and NaN are not below.
constexpr uint32_t kInfinityBits = 0x7f800000u;

uint32_t Magnitude(float value) {
  return std::bit_cast<uint32_t>(value) & 0x7fffffffu;
}

// True if all sum(i) are finite. As integers, so that it vectorises.
template <typename Sum>
bool AllSumsFinite(size_t count, Sum sum) {
  uint32_t largest = 0;
  for (size_t i = 0; i < count; ++i) {
    largest = std::max(largest, Magnitude(sum(i)));
  }
  return largest < kInfinityBits;
}

void Multiply(float factor, float* values, size_t count) {
  if (factor == 1) return;
  for (size_t i = 0; i < count; ++i) values[i] *= factor;
}

// g + r, in place of r.
bool AddResidual(const float* g, float scale, float ratio, size_t count,
                 float* r) {
  const auto sum = [&](size_t i) { return g[i] * scale + r[i] * ratio; };
  if (!AllSumsFinite(count, sum)) return false;
  for (size_t i = 0; i < count; ++i) r[i] = sum(i);
  return true;
}

// u = m * u + g and v = v + u.
bool AddMomentum(const float* g, float scale, float ratio, float momentum,
                 size_t count, float* u, float* v) {
  const auto velocity = [&](size_t i) {
    return u[i] * ratio * momentum + g[i] * scale;
  };
  const auto sum = [&](size_t i) { return v[i] * ratio + velocity(i); };
  if (!AllSumsFinite(count, velocity) || !AllSumsFinite(count, sum)) {
    return false;
  }
  for (size_t i = 0; i < count; ++i) {
    u[i] = velocity(i);
    v[i] = v[i] * ratio + u[i];
  }
  return true;
}

// Of `count` elements of a tensor of `all` without any block that stays whole,
// at most.
uint64_t BytesWithoutWhole(const GradientCompression& compression,
                           uint64_t count, uint64_t all) {
  switch (compression.kind) {
    case Kind::kInt8:  // a scale for at least 32 elements
      return count + count / 8;
    case Kind::kTernGrad:
      return count / 4 + count / 8;
    case Kind::kOneBitAdam:  // its warm-up
      return count * sizeof(float);
    default:  // a float for each one that is sent, a bit for each element
      return count / 8 +
             sizeof(float) * std::min<uint64_t>(count, compression.ElementsAt(
                                                           /*clock=*/0, all));
  }
}

}  // namespace

GradientCompressor::GradientCompressor(Options options,
                                       absl::Span<const Block> blocks)
    : options_(std::move(options)),
      blocks_(blocks.begin(), blocks.end()),
      encoded_(blocks.size()) {
  for (uint32_t id = 0; id < blocks_.size(); ++id) {
    const uint32_t tensor = blocks_[id].tensor;
    if (tensor >= tensors_.size()) tensors_.resize(tensor + 1);
    tensors_[tensor].blocks.push_back(id);
  }
  for (size_t i = 0; i < tensors_.size(); ++i) {
    Tensor& tensor = tensors_[i];
    tensor.is_running_mean = IsRunningMean(options_, i);
    TakeMemory(&tensor);
  }
  if (options_.start == nullptr) return;
  GoOnWith(options_.start.get());
  options_.start = nullptr;
}

void GradientCompressor::GoOnWith(KeptGradients* kept) {
  SYNCLINE_CHECK(kept->tensors.size() == tensors_.size());
  const auto take = [](AlignedFloats* from, AlignedFloats* to) {
    SYNCLINE_CHECK(from->size() == to->size());
    *to = std::move(*from);
  };
  for (size_t i = 0; i < tensors_.size(); ++i) {
    KeptGradients::Tensor& from = kept->tensors[i];
    Tensor& to = tensors_[i];
    take(&from.residual, &to.residual);
    take(&from.momentum, &to.momentum);
    to.samples = from.samples;
  }
  keeps_some_ = true;
}

void GradientCompressor::CopyKept(KeptGradients* to) const {
  to->tensors.resize(tensors_.size());
  const auto copy = [](const AlignedFloats& from, AlignedFloats* floats) {
    if (floats->size() != from.size()) *floats = AlignedFloats(from.size());
    absl::c_copy(from.span(), floats->data());
  };
  for (size_t i = 0; i < tensors_.size(); ++i) {
    to->tensors[i].samples = tensors_[i].samples;
    copy(tensors_[i].residual, &to->tensors[i].residual);
    copy(tensors_[i].momentum, &to->tensors[i].momentum);
  }
}

void GradientCompressor::TakeMemory(Tensor* tensor) {
  if (tensor->is_running_mean || tensor->blocks.empty()) return;
  const Block& last = blocks_[tensor->blocks.back()];
  const auto count = static_cast<size_t>(last.offset + last.count);
  const auto take = [&](bool is_used, AlignedFloats* floats) {
    if (is_used && floats->size() == 0) *floats = AlignedFloats(count);
  };
  take(options_.compression.has_residuals(), &tensor->residual);
  take(KeepsMomentum(options_), &tensor->momentum);
  if (!options_.may_be_undone) return;
  take(tensor->residual.size() > 0, &tensor->old_residual);
  take(tensor->momentum.size() > 0, &tensor->old_momentum);
}

void GradientCompressor::Follow(const GradientCompression& compression,
                                bool may_be_undone) {
  if (compression == options_.compression &&
      may_be_undone == options_.may_be_undone) {
    return;
  }
  options_.compression = compression;
  options_.may_be_undone = may_be_undone;
  for (Tensor& tensor : tensors_) TakeMemory(&tensor);
  if (compression.any()) return;
  for (std::string& block : encoded_) std::string().swap(block);
}

uint64_t GradientCompressor::StateBytes(const Options& options,
                                        absl::Span<const TensorSize> tensors) {
  if (!options.compression.any()) return 0;
  uint64_t kept = 0;
  if (options.compression.has_residuals()) {
    kept = sizeof(float) * (KeepsMomentum(options) ? 2u : 1u) *
           (options.may_be_undone ? 2u : 1u);
  }
  uint64_t state = 0;
  uint64_t encoded = 0;
  uint64_t largest = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto count = static_cast<uint64_t>(tensors[i].element_count);
    const bool is_mean = IsRunningMean(options, i);
    encoded += is_mean || options.sends_non_finite
                   ? count * sizeof(float)
                   : BytesWithoutWhole(options.compression, count, count);
    if (is_mean) continue;
    state += kept * count;
    largest = std::max(largest, count);
  }
  uint64_t found = 0;
  if (options.compression.sparse()) {
    // Magnitudes of a tensor, and indices of a block in a vector that grows by
    // doubling.
    const uint64_t chosen =
        std::min<uint64_t>(options.compression.ElementsAt(/*clock=*/0, largest),
                           kCompressedElementsMax);
    found = (largest + 2 * chosen) * sizeof(uint32_t);
  }
  return state + 2 * encoded + found;
}

uint64_t GradientCompressor::KeptBytes(const Options& options,
                                       absl::Span<const TensorSize> tensors) {
  if (!options.compression.has_residuals()) return 0;
  uint64_t bytes = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (IsRunningMean(options, i)) continue;
    bytes += static_cast<uint64_t>(tensors[i].element_count) * sizeof(float) *
             (KeepsMomentum(options) ? 2 : 1);
  }
  return bytes;
}

uint64_t GradientCompressor::EncodedBytes(const Options& options,
                                          const BlockMap& map, uint32_t shard) {
  std::vector<uint64_t> here;
  std::vector<uint64_t> all;
  for (const Block& block : map.blocks()) {
    if (block.tensor >= all.size()) {
      here.resize(block.tensor + 1);
      all.resize(block.tensor + 1);
    }
    all[block.tensor] += static_cast<uint64_t>(block.count);
    if (block.shard == shard) {
      here[block.tensor] += static_cast<uint64_t>(block.count);
    }
  }
  uint64_t bytes = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    bytes += IsRunningMean(options, i) || options.sends_non_finite
                 ? here[i] * sizeof(float)
                 : BytesWithoutWhole(options.compression, here[i], all[i]);
  }
  return bytes;
}

void GradientCompressor::BeginStep(int64_t clock, uint64_t samples) {
  if (clock == clock_) return;
  if (std::exchange(sends_all_, false)) EmptyResiduals();
  sends_all_ = keeps_some_ && !options_.compression.has_residuals();
  samples_ = samples;
  can_undo_ = options_.may_be_undone;
  clock_ = clock;
  scale_ = 1;
}

void GradientCompressor::Clip(double norm, double clip_norm, bool averaged) {
  const double most =
      averaged ? clip_norm * std::sqrt(options_.workers) : clip_norm;
  if (norm > most) scale_ = static_cast<float>(most / norm);
}

void GradientCompressor::Undo() {
  if (!std::exchange(can_undo_, false)) return;
  sends_all_ = false;
  for (Tensor& tensor : tensors_) {
    if (tensor.clock != clock_) continue;
    tensor.samples = tensor.old_samples;
    std::swap(tensor.residual, tensor.old_residual);
    std::swap(tensor.momentum, tensor.old_momentum);
  }
}

void GradientCompressor::EmptyResiduals() {
  for (Tensor& tensor : tensors_) {
    const absl::Span<float> residual = tensor.residual.span();
    absl::c_fill(residual, 0.0f);
  }
  keeps_some_ = false;
}

void GradientCompressor::AddWhole(Tensor* tensor,
                                  absl::Span<const float> gradient) {
  float* const residual = tensor->residual.data();
  for (size_t i = 0; i < gradient.size(); ++i) {
    residual[i] = gradient[i] * scale_ + residual[i] * ratio_;
  }
  if (!options_.compression.any()) return;
  for (const uint32_t id : tensor->blocks) {
    EncodeWhole(residual + blocks_[id].offset,
                static_cast<size_t>(blocks_[id].count), &encoded_[id]);
  }
}

bool GradientCompressor::AddUp(Tensor* tensor, size_t offset, size_t count,
                               const float* gradient) {
  float* const residual = tensor->residual.data() + offset;
  if (tensor->momentum.size() == 0) {
    if (AddResidual(gradient, scale_, ratio_, count, residual)) return true;
  } else {
    float* const momentum = tensor->momentum.data() + offset;
    if (AddMomentum(gradient, scale_, ratio_, options_.momentum, count,
                    momentum, residual)) {
      return true;
    }
    Multiply(ratio_, momentum, count);
  }
  Multiply(ratio_, residual, count);
  return false;
}

bool GradientCompressor::AddUpMoment(Tensor* tensor, size_t offset,
                                     const AdamMoments& moments, const float* g,
                                     uint64_t samples) {
  if (!AllFinite(g, moments.first.size())) return false;
  const FrozenAdam adam(
      options_.adam, static_cast<int64_t>(options_.compression.warmup_clocks),
      options_.workers);
  const auto of = static_cast<float>(samples);
  const float to_mean = scale_ / of;
  const float ratio = ratio_;
  float* const r = tensor->residual.data() + offset;
  const float* const first = moments.first.data();
  const float* const second = moments.second.data();
  const size_t count = moments.first.size();
  uint32_t largest = 0;
  for (size_t i = 0; i < count; ++i) {
    const float u =
        adam.NextOverRoot(first[i], g[i] * to_mean, adam.Root(second[i]));
    r[i] = u * of + r[i] * ratio;
    largest = std::max(largest, Magnitude(r[i]));
  }
  return largest < kInfinityBits;
}

void GradientCompressor::CompressMoment(Tensor* tensor,
                                        absl::Span<const float> gradient,
                                        uint64_t samples) {
  const bool sends_moments = options_.compression.SendsMoments(clock_);
  const uint32_t group = options_.compression.block_elements;
  for (const uint32_t id : tensor->blocks) {
    const auto offset = static_cast<size_t>(blocks_[id].offset);
    const auto count = static_cast<size_t>(blocks_[id].count);
    const float* const of = gradient.data() + offset;
    if (sends_moments &&
        (options_.moments == nullptr
             ? AddUp(tensor, offset, count, of)
             : AddUpMoment(tensor, offset, options_.moments(id), of,
                           samples))) {
      EncodeSigns(tensor->residual.data() + offset, count, group,
                  &encoded_[id]);
    } else {
      // Of the gradient and the sum the one that is not finite: the job fails
      // by it.
      const bool is_sum = sends_moments && AllFinite(of, count);
      EncodeWhole(is_sum ? tensor->residual.data() + offset : of, count,
                  &encoded_[id]);
    }
  }
}

void GradientCompressor::Compress(uint32_t index,
                                  absl::Span<const float> gradient,
                                  uint64_t samples) {
  if (!options_.compression.any() && !sends_all_) return;
  Tensor& tensor = tensors_[index];
  if (std::exchange(tensor.clock, clock_) == clock_) return;
  tensor.old_samples = std::exchange(tensor.samples, samples);
  ratio_ = tensor.old_samples == 0
               ? 1
               : static_cast<float>(static_cast<double>(samples) /
                                    static_cast<double>(tensor.old_samples));
  if (tensor.old_residual.size() > 0) {
    absl::c_copy(tensor.residual.span(), tensor.old_residual.data());
    absl::c_copy(tensor.momentum.span(), tensor.old_momentum.data());
  }
  for (const uint32_t id : tensor.blocks) {
    // A sparse block has another size at each step. Its memory goes back, or
    // every block would keep as much as its largest one has taken.
    if (options_.compression.sparse()) {
      std::string().swap(encoded_[id]);
    } else {
      encoded_[id].clear();
    }
  }
  if (tensor.is_running_mean) {
    if (!options_.compression.any()) return;
    for (const uint32_t id : tensor.blocks) {
      const Block& block = blocks_[id];
      EncodeWhole(gradient.data() + block.offset,
                  static_cast<size_t>(block.count), &encoded_[id]);
    }
    return;
  }
  if (sends_all_) return AddWhole(&tensor, gradient);
  if (options_.compression.has_residuals()) keeps_some_ = true;
  if (options_.compression.sparse()) return CompressLargest(&tensor, gradient);
  if (options_.compression.kind == Kind::kOneBitAdam) {
    return CompressMoment(&tensor, gradient, samples);
  }
  const uint64_t seed = SeedFor(SeedFor(SeedFor(options_.seed, options_.rank),
                                        static_cast<uint64_t>(clock_)),
                                index);
  const uint32_t group = options_.compression.block_elements;
  for (const uint32_t id : tensor.blocks) {
    const auto offset = static_cast<size_t>(blocks_[id].offset);
    const auto count = static_cast<size_t>(blocks_[id].count);
    const float* const of = gradient.data() + offset;
    if (options_.compression.kind == Kind::kTernGrad) {
      if (AllFinite(of, count)) {
        EncodeTernary(of, count, group, seed + offset, &encoded_[id]);
      } else {
        EncodeWhole(of, count, &encoded_[id]);
      }
    } else if (AddUp(&tensor, offset, count, of)) {
      EncodeInt8(tensor.residual.data() + offset, count, group, &encoded_[id]);
    } else {
      EncodeWhole(of, count, &encoded_[id]);
    }
  }
}

void GradientCompressor::CompressLargest(Tensor* tensor,
                                         absl::Span<const float> gradient) {
  finder_.Begin();
  uint64_t elements = 0;
  whole_.clear();
  for (const uint32_t id : tensor->blocks) {
    const auto offset = static_cast<size_t>(blocks_[id].offset);
    const auto count = static_cast<size_t>(blocks_[id].count);
    if (AddUp(tensor, offset, count, gradient.data() + offset)) {
      finder_.Count(tensor->residual.data() + offset, count);
      elements += count;
    } else {
      EncodeWhole(gradient.data() + offset, count, &encoded_[id]);
      whole_.push_back(id);
    }
  }
  if (elements == 0) return;
  finder_.Choose(options_.compression.ElementsAt(clock_, elements));
  const auto for_each = [&](auto visit) {
    auto whole = whole_.begin();
    for (const uint32_t id : tensor->blocks) {
      if (whole != whole_.end() && *whole == id) {
        ++whole;
      } else {
        visit(id, static_cast<size_t>(blocks_[id].offset),
              static_cast<size_t>(blocks_[id].count));
      }
    }
  };
  for_each([&](uint32_t, size_t offset, size_t count) {
    finder_.Collect(tensor->residual.data() + offset, count);
  });
  LargestElements largest = finder_.Find();
  for_each([&](uint32_t id, size_t offset, size_t count) {
    float* const residual = tensor->residual.data() + offset;
    chosen_.clear();
    EncodeLargest(residual, count, &largest, &chosen_, &encoded_[id]);
    for (const uint32_t i : chosen_) residual[i] = 0;
    if (tensor->momentum.size() == 0) return;
    float* const momentum = tensor->momentum.data() + offset;
    for (const uint32_t i : chosen_) momentum[i] = 0;
  });
}

absl::Span<const float> GradientCompressor::whole(uint32_t index) const {
  return tensors_[index].residual.span();
}

absl::Span<const float> GradientCompressor::residual(uint32_t tensor) const {
  return tensors_[tensor].residual.span();
}

}  // namespace syncline::worker
