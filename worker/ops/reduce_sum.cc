#include "worker/ops/integers.h"
#include "worker/ops/reduce.h"

namespace syncline::worker {

absl::StatusOr<std::unique_ptr<Op>> MakeReduceSum(const OpSpec& spec) {
  if (IsInteger(spec.input(0).dtype)) {
    return MakeIntegerReduction(spec, IntegerFunction::kAdd);
  }
  return MakeReduce(spec, Reduction::kSum);
}

}  // namespace syncline::worker
