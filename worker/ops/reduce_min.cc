#include "worker/ops/integers.h"
#include "worker/ops/reduce_extremum.h"

namespace syncline::worker {

absl::StatusOr<std::unique_ptr<Op>> MakeReduceMin(const OpSpec& spec) {
  if (IsInteger(spec.input(0).dtype)) {
    return MakeIntegerReduction(spec, IntegerFunction::kMin);
  }
  return MakeReduceExtremum(spec, /*largest=*/false);
}

}  // namespace syncline::worker
