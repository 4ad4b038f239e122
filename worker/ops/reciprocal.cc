#include "worker/ops/pointwise_op.h"

namespace syncline::worker {
namespace {

struct Inverse {
  float Value(float x) const { return 1.0f / x; }
  float Derivative(float x) const { return -1.0f / (x * x); }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeReciprocal(const OpSpec& spec) {
  return MakePointwise(spec, Inverse{});
}

}  // namespace syncline::worker
