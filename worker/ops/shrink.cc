#include "worker/ops/pointwise_op.h"

namespace syncline::worker {
namespace {

// Zero within [-limit, limit]; outside it, nearer to zero by `bias`.
struct Shrunk {
  float limit;
  float bias;
  float Value(float x) const {
    return x < -limit ? x + bias : (x > limit ? x - bias : (x == x ? 0.0f : x));
  }
  float Derivative(float x) const {
    return x < -limit || x > limit ? 1.0f : 0.0f;
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeShrink(const OpSpec& spec) {
  return MakePointwise(spec, Shrunk{spec.node->Float("lambd", 0.5f),
                                    spec.node->Float("bias", 0.0f)});
}

}  // namespace syncline::worker
