#include <cmath>

#include "worker/ops/pointwise_op.h"

namespace syncline::worker {

absl::StatusOr<std::unique_ptr<Op>> MakeFloor(const OpSpec& spec) {
  return MakeStepFunction(spec, [](float x) { return std::floor(x); });
}

}  // namespace syncline::worker
