#include <cmath>

#include "kernels/vector_math.h"
#include "worker/ops/pointwise_op.h"

namespace syncline {
namespace {

struct Soft {
  // log(1 + e^x), without overflow.
  float Value(float x) const {
    const float a = std::fabs(x);
    return (x > 0 ? x : (x < 0 ? 0.0f : x)) + Log(1.0f + Exp(-a));
  }
  float Derivative(float x) const { return Logistic(x); }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeSoftplus(const OpSpec& spec) {
  return MakePointwise(spec, Soft{});
}

}  // namespace syncline
