#include "worker/ops/combine.h"

namespace syncline::worker {

absl::StatusOr<std::unique_ptr<Op>> MakeMean(const OpSpec& spec) {
  return MakeCombination(spec, Combination::kMean);
}

}  // namespace syncline::worker
