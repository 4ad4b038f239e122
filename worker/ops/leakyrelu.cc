#include "worker/ops/pointwise_op.h"

namespace syncline {
namespace {

struct Leaky {
  float alpha;
  float Value(float x) const { return x < 0 ? alpha * x : x; }
  float Derivative(float x) const { return x < 0 ? alpha : 1.0f; }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeLeakyRelu(const OpSpec& spec) {
  return MakePointwise(spec, Leaky{spec.node->Float("alpha", 0.01f)});
}

}  // namespace syncline
