#include "worker/ops/compare.h"

namespace syncline::worker {

absl::StatusOr<std::unique_ptr<Op>> MakeGreaterOrEqual(const OpSpec& spec) {
  return MakeComparison(spec, Comparison::kLessOrEqual, /*swapped=*/true);
}

}  // namespace syncline::worker
