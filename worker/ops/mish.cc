// Misra, BMVC 2020.

#include "kernels/vector_math.h"
#include "worker/ops/pointwise_op.h"

namespace syncline {
namespace {

// x * tanh(log(1 + e^x)), where the tanh is n / (n + 2), n = e^x (e^x + 2).
// From 20 on it is 1, which must not become infinity over infinity.
struct SelfRegularized {
  static float Gate(float x) {
    const float power = Exp(x > 20.0f ? 20.0f : x);
    const float n = power * (power + 2.0f);
    return n / (n + 2.0f);
  }
  float Value(float x) const { return x * Gate(x); }
  float Derivative(float x) const {
    const float gate = Gate(x);
    return gate + x * Logistic(x) * (1.0f - gate * gate);
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeMish(const OpSpec& spec) {
  return MakePointwise(spec, SelfRegularized{});
}

}  // namespace syncline
