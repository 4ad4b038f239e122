// Klambauer et al., NIPS 2017.

#include "kernels/elementwise/vector_math.h"
#include "worker/ops/pointwise_op.h"

namespace syncline::worker {
namespace {

struct Scaled {
  float alpha;
  float gamma;
  float Value(float x) const {
    return gamma * (x > 0 ? x : alpha * ExpMinusOne(x));
  }
  float Derivative(float x) const {
    return gamma * (x > 0 ? 1.0f : alpha * Exp(x));
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeSelu(const OpSpec& spec) {
  return MakePointwise(spec, Scaled{spec.node->Float("alpha", 1.67326319f),
                                    spec.node->Float("gamma", 1.05070102f)});
}

}  // namespace syncline::worker
