#include <cmath>

#include "worker/ops/pointwise_op.h"

namespace syncline::worker {
namespace {

struct HyperbolicCosine {
  float Value(float x) const { return std::cosh(x); }
  float Derivative(float x) const { return std::sinh(x); }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeCosh(const OpSpec& spec) {
  return MakePointwise(spec, HyperbolicCosine{});
}

}  // namespace syncline::worker
