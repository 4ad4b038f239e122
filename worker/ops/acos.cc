#include <cmath>

#include "worker/ops/pointwise_op.h"

namespace syncline::worker {
namespace {

struct ArcCosine {
  float Value(float x) const { return std::acos(x); }
  float Derivative(float x) const {
    return -1.0f / std::sqrt((1.0f - x) * (1.0f + x));
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeAcos(const OpSpec& spec) {
  return MakePointwise(spec, ArcCosine{});
}

}  // namespace syncline::worker
