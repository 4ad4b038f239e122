#include <cmath>

#include "worker/ops/reduce_mapped.h"

namespace syncline::worker {
namespace {

struct Length {
  static float Term(float x) { return x * x; }
  static float Result(float sum) { return std::sqrt(sum); }
  // At 0, where there is none, 0.
  static float Derivative(float x, float y) { return y == 0 ? 0.0f : x / y; }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeReduceL2(const OpSpec& spec) {
  return MakeMappedReduce<Length>(spec);
}

}  // namespace syncline::worker
