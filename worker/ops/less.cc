#include "worker/ops/compare.h"

namespace syncline::worker {

absl::StatusOr<std::unique_ptr<Op>> MakeLess(const OpSpec& spec) {
  return MakeComparison(spec, Comparison::kLess);
}

}  // namespace syncline::worker
