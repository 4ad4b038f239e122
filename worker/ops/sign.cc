#include <cmath>

#include "worker/ops/integers.h"
#include "worker/ops/pointwise_op.h"

namespace syncline::worker {

absl::StatusOr<std::unique_ptr<Op>> MakeSign(const OpSpec& spec) {
  if (IsInteger(spec.input(0).dtype)) {
    return MakeIntegerUnary(spec, IntegerUnary::kSign);
  }
  return MakeStepFunction(
      spec, [](float x) { return x > 0 ? 1.0f : (x < 0 ? -1.0f : x); });
}

}  // namespace syncline::worker
