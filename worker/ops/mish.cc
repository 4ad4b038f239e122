// Misra, BMVC 2020.

#include "kernels/elementwise/vector_math.h"
#include "worker/ops/pointwise_op.h"

namespace syncline::worker {
namespace {

// x * tanh(log(1 + e^x)), where the tanh is n / (n + 2), n = e^x (e^x + 2).
// From 20 on it is 1, which must not become infinity over infinity.
struct SelfRegularized {
  static float Power(float x) {
    const float power = Exp(x > 20.0f ? 20.0f : x);
    return power * (power + 2.0f);
  }
  float Value(float x) const {
    const float n = Power(x);
    return x * (n / (n + 2.0f));
  }
  // 1 - tanh^2 is 4 (n + 1) / (n + 2)^2, which cancels nothing.
  float Derivative(float x) const {
    const float n = Power(x);
    const float share = 1.0f / (n + 2.0f);
    return n * share + x * Logistic(x) * (4.0f * (n + 1.0f) * share * share);
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeMish(const OpSpec& spec) {
  return MakePointwise(spec, SelfRegularized{});
}

}  // namespace syncline::worker
