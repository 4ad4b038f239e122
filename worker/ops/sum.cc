#include "worker/ops/combine.h"

namespace syncline::worker {

absl::StatusOr<std::unique_ptr<Op>> MakeSum(const OpSpec& spec) {
  return MakeCombination(spec, Combination::kSum);
}

}  // namespace syncline::worker
