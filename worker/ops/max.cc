#include "worker/ops/combine.h"

namespace syncline {

absl::StatusOr<std::unique_ptr<Op>> MakeMax(const OpSpec& spec) {
  return MakeCombination(spec, Combination::kMax);
}

}  // namespace syncline
