#include "worker/ops/reduce_mapped.h"

namespace syncline::worker {
namespace {

struct Squares {
  static float Term(float x) { return x * x; }
  static float Result(float sum) { return sum; }
  static float Derivative(float x, float) { return 2.0f * x; }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeReduceSumSquare(const OpSpec& spec) {
  return MakeMappedReduce<Squares>(spec);
}

}  // namespace syncline::worker
