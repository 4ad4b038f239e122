#include "worker/ops/compare.h"

namespace syncline::worker {

absl::StatusOr<std::unique_ptr<Op>> MakeGreater(const OpSpec& spec) {
  return MakeComparison(spec, Comparison::kLess, /*swapped=*/true);
}

}  // namespace syncline::worker
