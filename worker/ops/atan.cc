#include <cmath>

#include "worker/ops/pointwise_op.h"

namespace syncline::worker {
namespace {

struct ArcTangent {
  float Value(float x) const { return std::atan(x); }
  float Derivative(float x) const { return 1.0f / (1.0f + x * x); }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeAtan(const OpSpec& spec) {
  return MakePointwise(spec, ArcTangent{});
}

}  // namespace syncline::worker
