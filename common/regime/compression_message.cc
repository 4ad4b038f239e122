#include "common/regime/compression_message.h"

#include "absl/strings/str_cat.h"
#include "common/job/compression_rules.h"

namespace syncline {
namespace {

using C = CompressionSpec;
using Kind = GradientCompression::Kind;

static_assert(static_cast<int>(Kind::kNone) == C::NONE);
static_assert(static_cast<int>(Kind::kInt8) == C::INT8);
static_assert(static_cast<int>(Kind::kTopK) == C::TOP_K);
static_assert(static_cast<int>(Kind::kDgc) == C::DGC);
static_assert(static_cast<int>(Kind::kTernGrad) == C::TERNGRAD);
static_assert(static_cast<int>(Kind::kOneBitAdam) == C::ONE_BIT_ADAM);

}  // namespace

absl::StatusOr<GradientCompression> ReadCompression(const C& spec) {
  if (spec.kind() < C::NONE || spec.kind() > C::ONE_BIT_ADAM) {
    return absl::InvalidArgumentError(
        absl::StrCat("kind: ", static_cast<int>(spec.kind()), " is not built"));
  }
  GradientCompression compression;
  compression.kind = static_cast<Kind>(spec.kind());
  compression.values = spec.values();
  if (compression.kind == Kind::kOneBitAdam) {
    if (spec.warmup_clocks() == 0) {
      return absl::InvalidArgumentError(
          "warmup_clocks: ONE_BIT_ADAM needs at least 1");
    }
    compression.values = true;
    compression.warmup_clocks = spec.warmup_clocks();
  }
  if (compression.sparse()) {
    if (spec.fraction() != 0) compression.fraction = spec.fraction();
    if (!(compression.fraction > 0 && compression.fraction < 1)) {
      return absl::InvalidArgumentError(
          absl::StrCat("fraction: ", spec.fraction(), " is outside (0, 1)"));
    }
    compression.warmup_clocks = spec.warmup_clocks();
  } else if (spec.block_elements() != 0) {
    compression.block_elements = spec.block_elements();
    if (compression.block_elements < kCompressionBlockMin ||
        compression.block_elements > kCompressionBlockMax) {
      return absl::InvalidArgumentError(absl::StrCat(
          "block_elements: ", spec.block_elements(), " is outside ",
          kCompressionBlockMin, "..", kCompressionBlockMax));
    }
  }
  return compression;
}

CompressionSpec ToProto(const GradientCompression& compression) {
  C spec;
  spec.set_kind(KindOf(compression));
  spec.set_values(compression.values);
  if (compression.kind == Kind::kOneBitAdam) {
    spec.set_warmup_clocks(compression.warmup_clocks);
  }
  if (compression.sparse()) {
    spec.set_fraction(compression.fraction);
    spec.set_warmup_clocks(compression.warmup_clocks);
  } else if (compression.any()) {
    spec.set_block_elements(compression.block_elements);
  }
  return spec;
}

}  // namespace syncline
