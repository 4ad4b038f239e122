#include "worker/ops/combine.h"

namespace syncline {

absl::StatusOr<std::unique_ptr<Op>> MakeSum(const OpSpec& spec) {
  return MakeCombination(spec, Combination::kSum);
}

}  // namespace syncline
