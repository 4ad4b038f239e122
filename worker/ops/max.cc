#include "worker/ops/combine.h"
#include "worker/ops/integers.h"

namespace syncline::worker {

absl::StatusOr<std::unique_ptr<Op>> MakeMax(const OpSpec& spec) {
  if (IsInteger(spec.input(0).dtype)) {
    return MakeIntegerArithmetic(spec, IntegerFunction::kMax);
  }
  return MakeCombination(spec, Combination::kMax);
}

}  // namespace syncline::worker
