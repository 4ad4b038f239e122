// Ramachandran et al., 2017; with alpha 1, SiLU.

#include "kernels/elementwise/vector_math.h"
#include "worker/ops/pointwise_op.h"

namespace syncline::worker {
namespace {

struct SelfGated {
  float alpha;
  float Value(float x) const { return x * Logistic(alpha * x); }
  float Derivative(float x) const {
    const float gate = Logistic(alpha * x);
    return gate + alpha * x * gate * (1.0f - gate);
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeSwish(const OpSpec& spec) {
  return MakePointwise(spec, SelfGated{spec.node->Float("alpha", 1.0f)});
}

}  // namespace syncline::worker
