#include <cmath>

#include "worker/ops/pointwise_op.h"

namespace syncline {

absl::StatusOr<std::unique_ptr<Op>> MakeSign(const OpSpec& spec) {
  return MakeStepFunction(
      spec, [](float x) { return x > 0 ? 1.0f : (x < 0 ? -1.0f : x); });
}

}  // namespace syncline
