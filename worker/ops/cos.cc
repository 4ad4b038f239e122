#include <cmath>

#include "worker/ops/pointwise_op.h"

namespace syncline::worker {
namespace {

struct Cosine {
  float Value(float x) const { return std::cos(x); }
  float Derivative(float x) const { return -std::sin(x); }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeCos(const OpSpec& spec) {
  return MakePointwise(spec, Cosine{});
}

}  // namespace syncline::worker
