#include <cmath>

#include "worker/ops/pointwise_op.h"

namespace syncline::worker {
namespace {

struct Logarithm {
  float Value(float x) const { return std::log(x); }
  float Derivative(float x) const { return 1.0f / x; }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeLog(const OpSpec& spec) {
  return MakePointwise(spec, Logarithm{});
}

}  // namespace syncline::worker
