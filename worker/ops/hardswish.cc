// Howard et al., ICCV 2019: x * clip(x / 6 + 1 / 2, 0, 1).

#include "worker/ops/pointwise_op.h"

namespace syncline::worker {
namespace {

struct Hard {
  float Value(float x) const {
    const float gate = x * (1.0f / 6) + 0.5f;
    const float low = gate < 0 ? 0.0f : gate;
    return x * (low > 1 ? 1.0f : low);
  }
  float Derivative(float x) const {
    const float inside = x * (1.0f / 3) + 0.5f;
    return x <= -3 ? 0.0f : (x >= 3 ? 1.0f : inside);
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeHardSwish(const OpSpec& spec) {
  return MakePointwise(spec, Hard{});
}

}  // namespace syncline::worker
