#include <cmath>

#include "worker/ops/pointwise_op.h"

namespace syncline {
namespace {

struct Squash {
  float Value(float x) const { return x / (1.0f + std::fabs(x)); }
  float Derivative(float x) const {
    const float away = 1.0f + std::fabs(x);
    return 1.0f / (away * away);
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeSoftsign(const OpSpec& spec) {
  return MakePointwise(spec, Squash{});
}

}  // namespace syncline
