#include "worker/ops/pointwise_op.h"

namespace syncline {
namespace {

struct AboveThreshold {
  float alpha;
  float Value(float x) const { return x <= alpha ? 0.0f : x; }
  float Derivative(float x) const { return x > alpha ? 1.0f : 0.0f; }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeThresholdedRelu(const OpSpec& spec) {
  return MakePointwise(spec, AboveThreshold{spec.node->Float("alpha", 1.0f)});
}

}  // namespace syncline
