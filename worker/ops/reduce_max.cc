#include "worker/ops/integers.h"
#include "worker/ops/reduce_extremum.h"

namespace syncline::worker {

absl::StatusOr<std::unique_ptr<Op>> MakeReduceMax(const OpSpec& spec) {
  if (IsInteger(spec.input(0).dtype)) {
    return MakeIntegerReduction(spec, IntegerFunction::kMax);
  }
  return MakeReduceExtremum(spec, /*largest=*/true);
}

}  // namespace syncline::worker
