#include <cmath>

#include "worker/ops/pointwise_op.h"

namespace syncline::worker {
namespace {

struct AreaCosine {
  float Value(float x) const { return std::acosh(x); }
  float Derivative(float x) const {
    return 1.0f / (std::sqrt(x - 1.0f) * std::sqrt(x + 1.0f));
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeAcosh(const OpSpec& spec) {
  return MakePointwise(spec, AreaCosine{});
}

}  // namespace syncline::worker
