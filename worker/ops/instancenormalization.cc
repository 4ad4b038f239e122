#include "worker/ops/plane_norm_op.h"

namespace syncline::worker {

absl::StatusOr<std::unique_ptr<Op>> MakeInstanceNormalization(
    const OpSpec& spec) {
  const Dims& x = spec.input(0).dims;
  return MakePlaneNorm(spec, x.size() < 2 ? 1 : x[1],
                       /*channels_per_parameter=*/1);
}

}  // namespace syncline::worker
