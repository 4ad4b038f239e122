#include <cmath>

#include "worker/ops/pointwise_op.h"

namespace syncline::worker {
namespace {

struct AreaTangent {
  float Value(float x) const { return std::atanh(x); }
  float Derivative(float x) const { return 1.0f / ((1.0f - x) * (1.0f + x)); }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeAtanh(const OpSpec& spec) {
  return MakePointwise(spec, AreaTangent{});
}

}  // namespace syncline::worker
