#include "worker/ops/plane_norm_op.h"

namespace syncline::worker {

// Scale and bias are per group in opset 18, per channel from 21 on.
absl::StatusOr<std::unique_ptr<Op>> MakeGroupNormalization(const OpSpec& spec) {
  const Dims& x = spec.input(0).dims;
  const int64_t groups = spec.node->Int("num_groups", 0);
  const bool by_group = spec.node->since_version < 21 && x.size() > 1 &&
                        groups > 0 && x[1] % groups == 0;
  return MakePlaneNorm(spec, groups, by_group ? x[1] / groups : 1);
}

}  // namespace syncline::worker
