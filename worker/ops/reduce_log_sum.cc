#include <cmath>

#include "kernels/elementwise/vector_math.h"
#include "worker/ops/reduce_mapped.h"

namespace syncline::worker {
namespace {

struct LogOfSum {
  static float Term(float x) { return x; }
  static float Result(float sum) { return std::log(sum); }
  static float Derivative(float, float y) { return Exp(-y); }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeReduceLogSum(const OpSpec& spec) {
  return MakeMappedReduce<LogOfSum>(spec);
}

}  // namespace syncline::worker
