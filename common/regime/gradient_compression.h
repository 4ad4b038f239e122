#ifndef SYNCLINE_COMMON_REGIME_GRADIENT_COMPRESSION_H_
#define SYNCLINE_COMMON_REGIME_GRADIENT_COMPRESSION_H_

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace syncline {

// How dense gradients are compressed on their way to their owner:
// CompressionSpec of proto/job_spec.proto, with its defaults filled in. Rows of
// tables and running means never are.
struct GradientCompression {
  // The numbers of CompressionSpec::Kind.
  enum class Kind { kNone = 1, kInt8, kTopK, kDgc, kTernGrad, kOneBitAdam };
  static constexpr double kDefaultFraction = 0.01;
  static constexpr uint32_t kDefaultBlockElements = 256;
  // DGC begins so; Lin et al. 2018, section 3.3: a sparsity of 75 %.
  static constexpr double kFirstFraction = 0.25;

  Kind kind = Kind::kNone;
  double fraction = kDefaultFraction;               // kTopK, kDgc: (0, 1)
  uint32_t block_elements = kDefaultBlockElements;  // not of the sparse ones
  uint64_t warmup_clocks = 0;                       // kDgc, kOneBitAdam
  // The answers are compressed too: sums of gradients, or changes of the ps'
  // values, come back as kInt8, and with kOneBitAdam as signs. Their owner
  // keeps the rounding error for the next answer.
  bool values = false;

  bool any() const { return kind != Kind::kNone; }
  // The largest elements of a tensor are sent, and no other.
  bool sparse() const { return kind == Kind::kTopK || kind == Kind::kDgc; }
  // The error of a compressed gradient is added to the next gradient.
  bool has_residuals() const { return any() && kind != Kind::kTernGrad; }

  // kOneBitAdam sends gradients whole up to this clock. From it on it sends
  // Adam's first moment in signs, and the second moment stays as it is.
  bool SendsMoments(int64_t clock) const {
    return kind == Kind::kOneBitAdam &&
           static_cast<uint64_t>(clock) >= warmup_clocks;
  }
  // The fraction that is sent at `clock`: with a warm-up it falls from
  // kFirstFraction by the same factor at each clock.
  double FractionAt(int64_t clock) const {
    const auto at = static_cast<double>(clock);
    const auto end = static_cast<double>(warmup_clocks);
    if (at >= end || fraction >= kFirstFraction) return fraction;
    return kFirstFraction * std::pow(fraction / kFirstFraction, at / end);
  }
  // Of a tensor of so many elements: at least 1.
  uint64_t ElementsAt(int64_t clock, uint64_t elements) const {
    const double share = FractionAt(clock) * static_cast<double>(elements);
    return std::clamp<uint64_t>(static_cast<uint64_t>(std::ceil(share)), 1,
                                std::max<uint64_t>(elements, 1));
  }

  friend bool operator==(const GradientCompression&,
                         const GradientCompression&) = default;
};

}  // namespace syncline

#endif  // SYNCLINE_COMMON_REGIME_GRADIENT_COMPRESSION_H_
