#include <cmath>

#include "worker/ops/pointwise_op.h"

namespace syncline::worker {
namespace {

struct AreaSine {
  float Value(float x) const { return std::asinh(x); }
  float Derivative(float x) const { return 1.0f / std::hypot(1.0f, x); }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeAsinh(const OpSpec& spec) {
  return MakePointwise(spec, AreaSine{});
}

}  // namespace syncline::worker
