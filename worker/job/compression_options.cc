#include "worker/job/compression_options.h"

#include <cmath>

#include "common/job/compression_rules.h"
#include "common/update/update_spec.h"
#include "worker/job/prepared_job.h"

namespace syncline::worker {

GradientCompressor::Options CompressorOptionsOf(const JobSpec& spec,
                                                const RegimeSchedule& regimes,
                                                const TrainingGraph& training,
                                                uint32_t rank) {
  GradientCompressor::Options options;
  // One for all clocks: a job that compresses keeps its regime.
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
  return GradientCompressor::StateBytes(
      CompressorOptionsOf(spec, regimes, training, /*rank=*/0),
      TensorSizesOf(training));
}

double ClipBeforeCompression(const JobSpec& spec, int workers) {
  if (!WorkersHaveMomentum(spec)) return 0;
  return spec.optimizer().clip_norm() / std::sqrt(static_cast<double>(workers));
}

}  // namespace syncline::worker
