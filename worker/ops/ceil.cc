#include <cmath>

#include "worker/ops/pointwise_op.h"

namespace syncline::worker {

absl::StatusOr<std::unique_ptr<Op>> MakeCeil(const OpSpec& spec) {
  return MakeStepFunction(spec, [](float x) { return std::ceil(x); });
}

}  // namespace syncline::worker
