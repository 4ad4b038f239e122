#include "worker/ops/combine.h"

namespace syncline {

absl::StatusOr<std::unique_ptr<Op>> MakeMin(const OpSpec& spec) {
  return MakeCombination(spec, Combination::kMin);
}

}  // namespace syncline
