#include <cmath>

#include "worker/ops/pointwise_op.h"

namespace syncline::worker {
namespace {

struct Sine {
  float Value(float x) const { return std::sin(x); }
  float Derivative(float x) const { return std::cos(x); }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeSin(const OpSpec& spec) {
  return MakePointwise(spec, Sine{});
}

}  // namespace syncline::worker
