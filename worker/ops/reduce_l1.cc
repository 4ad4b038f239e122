#include <cmath>

#include "worker/ops/reduce_mapped.h"

namespace syncline::worker {
namespace {

struct Magnitudes {
  static float Term(float x) { return std::fabs(x); }
  static float Result(float sum) { return sum; }
  static float Derivative(float x, float) {
    return x > 0 ? 1.0f : (x < 0 ? -1.0f : 0.0f);
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeReduceL1(const OpSpec& spec) {
  return MakeMappedReduce<Magnitudes>(spec);
}

}  // namespace syncline::worker
