#include <cmath>

#include "worker/ops/pointwise_op.h"

namespace syncline::worker {
namespace {

struct HyperbolicSine {
  float Value(float x) const { return std::sinh(x); }
  float Derivative(float x) const { return std::cosh(x); }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeSinh(const OpSpec& spec) {
  return MakePointwise(spec, HyperbolicSine{});
}

}  // namespace syncline::worker
