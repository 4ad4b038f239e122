#include <cmath>

#include "worker/ops/pointwise_op.h"

namespace syncline::worker {

absl::StatusOr<std::unique_ptr<Op>> MakeRound(const OpSpec& spec) {
  return MakeStepFunction(spec, [](float x) { return std::nearbyint(x); });
}

}  // namespace syncline::worker
