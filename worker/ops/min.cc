#include "worker/ops/combine.h"
#include "worker/ops/integers.h"

namespace syncline::worker {

absl::StatusOr<std::unique_ptr<Op>> MakeMin(const OpSpec& spec) {
  if (IsInteger(spec.input(0).dtype)) {
    return MakeIntegerArithmetic(spec, IntegerFunction::kMin);
  }
  return MakeCombination(spec, Combination::kMin);
}

}  // namespace syncline::worker
