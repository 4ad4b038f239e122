// Barron, 2017.

#include "kernels/elementwise/vector_math.h"
#include "worker/ops/pointwise_op.h"

namespace syncline::worker {
namespace {

struct ContinuousExponential {
  float alpha;
  float Value(float x) const {
    return x < 0 ? alpha * ExpMinusOne(x / alpha) : x;
  }
  float Derivative(float x) const { return x < 0 ? Exp(x / alpha) : 1.0f; }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeCelu(const OpSpec& spec) {
  return MakePointwise(spec,
                       ContinuousExponential{spec.node->Float("alpha", 1.0f)});
}

}  // namespace syncline::worker
