#include <cmath>

#include "worker/ops/integers.h"
#include "worker/ops/pointwise_op.h"

namespace syncline::worker {
namespace {

struct Magnitude {
  float Value(float x) const { return std::fabs(x); }
  float Derivative(float x) const {
    return x > 0 ? 1.0f : (x < 0 ? -1.0f : 0.0f * x);
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeAbs(const OpSpec& spec) {
  if (IsInteger(spec.input(0).dtype)) {
    return MakeIntegerUnary(spec, IntegerUnary::kMagnitude);
  }
  return MakePointwise(spec, Magnitude{});
}

}  // namespace syncline::worker
