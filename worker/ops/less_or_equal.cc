#include "worker/ops/compare.h"

namespace syncline::worker {

absl::StatusOr<std::unique_ptr<Op>> MakeLessOrEqual(const OpSpec& spec) {
  return MakeComparison(spec, Comparison::kLessOrEqual);
}

}  // namespace syncline::worker
