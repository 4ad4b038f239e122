#include <cmath>

#include "worker/ops/pointwise_op.h"

namespace syncline::worker {
namespace {

struct Tangent {
  float Value(float x) const { return std::tan(x); }
  float Derivative(float x) const {
    const float y = std::tan(x);
    return 1.0f + y * y;
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeTan(const OpSpec& spec) {
  return MakePointwise(spec, Tangent{});
}

}  // namespace syncline::worker
