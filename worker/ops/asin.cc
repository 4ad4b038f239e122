#include <cmath>

#include "worker/ops/pointwise_op.h"

namespace syncline::worker {
namespace {

struct ArcSine {
  float Value(float x) const { return std::asin(x); }
  float Derivative(float x) const {
    return 1.0f / std::sqrt((1.0f - x) * (1.0f + x));
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeAsin(const OpSpec& spec) {
  return MakePointwise(spec, ArcSine{});
}

}  // namespace syncline::worker
