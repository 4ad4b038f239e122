// Clevert et al., ICLR 2016.

#include "kernels/vector_math.h"
#include "worker/ops/pointwise_op.h"

namespace syncline {
namespace {

struct Exponential {
  float alpha;
  float Value(float x) const { return x < 0 ? alpha * (Exp(x) - 1.0f) : x; }
  float Derivative(float x) const { return x < 0 ? alpha * Exp(x) : 1.0f; }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeElu(const OpSpec& spec) {
  return MakePointwise(spec, Exponential{spec.node->Float("alpha", 1.0f)});
}

}  // namespace syncline
