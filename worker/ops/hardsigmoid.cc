#include "worker/ops/pointwise_op.h"

namespace syncline {
namespace {

struct Ramp {
  float alpha;
  float beta;
  float Value(float x) const {
    const float line = alpha * x + beta;
    return line < 0 ? 0.0f : (line > 1 ? 1.0f : line);
  }
  float Derivative(float x) const {
    const float line = alpha * x + beta;
    return line > 0 && line < 1 ? alpha : 0.0f;
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeHardSigmoid(const OpSpec& spec) {
  return MakePointwise(spec, Ramp{spec.node->Float("alpha", 0.2f),
                                  spec.node->Float("beta", 0.5f)});
}

}  // namespace syncline
