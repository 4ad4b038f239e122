#include "worker/job/compression_options.h"

#include <algorithm>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/job/compression_rules.h"
#include "common/regime/gradient_compression.h"
#include "common/update/update_spec.h"
#include "worker/job/prepared_job.h"

namespace syncline::worker {

namespace {

// Those that the job has come to, and, with their defaults, those that its
// rules lead to and that it tries.
std::vector<GradientCompression> LaterKinds(const JobSpec& spec,
                                            const RegimeSchedule& regimes) {
  std::vector<GradientCompression> kinds;
  for (const TrainingRegime& regime : regimes.regimes().subspan(1)) {
    kinds.push_back(regime.compression);
  }
  const auto add = [&kinds](const RegimeChange& change) {
    if (change.compression() == CompressionSpec::KIND_UNSPECIFIED) return;
    kinds.push_back(
        {.kind = static_cast<GradientCompression::Kind>(change.compression())});
  };
  for (const RegimeRule& rule : spec.regimes()) add(rule.then());
  for (const RegimeChange& candidate : spec.auto_regime().candidates()) {
    add(candidate);
  }
  return kinds;
}

}  // namespace

GradientCompressor::Options CompressorOptionsOf(const JobSpec& spec,
                                                const RegimeSchedule& regimes,
                                                const TrainingGraph& training,
                                                uint32_t rank) {
  GradientCompressor::Options options;
  options.compression = regimes.regimes()[0].compression;
  options.seed = spec.training().seed();
  options.rank = rank;
  if (WorkersHaveMomentum(spec) &&
      spec.optimizer().kind() == OptimizerSpec::MOMENTUM) {
    options.momentum = spec.optimizer().momentum();
  }
  // In the other modes a rank leaves a step out before it sends any of it.
  options.may_be_undone =
      regimes.AnySync() && GradientPolicyOf(spec) == OnNonFinite::kSkipStep;
  options.sends_non_finite = options.may_be_undone ||
                             GradientPolicyOf(spec) == OnNonFinite::kDropBlock;
  for (const TrainingGraph::Parameter& parameter : training.parameters) {
    options.running_means.push_back(parameter.momentum.has_value());
  }
  return options;
}

uint64_t CompressionBytes(const JobSpec& spec, const RegimeSchedule& regimes,
                          const TrainingGraph& training) {
  GradientCompressor::Options options =
      CompressorOptionsOf(spec, regimes, training, /*rank=*/0);
  const GradientCompression first = options.compression;
  const std::vector<GradientCompression> later = LaterKinds(spec, regimes);
  // The first step of a kind without residuals sends those of the kind before.
  options.sends_non_finite |= absl::c_any_of(later, [](const auto& kind) {
    return kind.any() && !kind.has_residuals();
  });
  const std::vector<TensorSize> sizes = TensorSizesOf(training);
  const bool saves = SavesResiduals(spec);
  const auto bytes_of = [&] {
    return GradientCompressor::StateBytes(options, sizes) +
           (saves ? GradientCompressor::KeptBytes(options, sizes) : 0);
  };
  uint64_t bytes = bytes_of();
  for (const GradientCompression& kind : later) {
    options.compression = kind.kind == first.kind ? first : kind;
    bytes = std::max(bytes, bytes_of());
  }
  return bytes;
}

absl::Status CheckFraction(const JobSpec& spec, const TrainingGraph& training) {
  const double fraction = spec.compression().fraction();
  if (fraction <= 0 || fraction >= GradientCompression::kDefaultFraction) {
    return absl::OkStatus();
  }
  uint64_t largest = 0;
  for (const TensorSize& tensor : TensorSizesOf(training)) {
    largest = std::max(largest, static_cast<uint64_t>(tensor.element_count));
  }
  const auto elements = static_cast<double>(largest);
  if (largest == 0 || fraction * elements >= 1) return absl::OkStatus();
  // Text has six digits, which may be rounded down.
  constexpr double kNextDigit = 1 + 1e-5;
  double least = 0;
  const bool is_number = absl::SimpleAtod(absl::StrCat(1 / elements), &least);
  SYNCLINE_CHECK(is_number);
  if (least * elements < 1) least = kNextDigit / elements;
  return absl::InvalidArgumentError(absl::StrCat(
      "compression.fraction: ", fraction, " of the largest tensor's ", largest,
      " elements is less than one element; ", least,
      " is one of it, and each tensor sends one at least"));
}

std::string WarmupWarning(const JobSpec& spec, int64_t clocks_total) {
  const CompressionSpec& compression = spec.compression();
  if (compression.kind() != CompressionSpec::ONE_BIT_ADAM ||
      static_cast<int64_t>(compression.warmup_clocks()) < clocks_total) {
    return "";
  }
  return absl::StrCat(
      "compression.warmup_clocks: ", compression.warmup_clocks(),
      " is not below the job's clocks, ", clocks_total,
      ", as its data, batch size and epochs make them: nothing "
      "is compressed");
}

double ClipBeforeCompression(const JobSpec& spec) {
  return WorkersHaveMomentum(spec) ? spec.optimizer().clip_norm() : 0;
}

}  // namespace syncline::worker
