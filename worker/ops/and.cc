#include "worker/ops/compare.h"

namespace syncline::worker {

absl::StatusOr<std::unique_ptr<Op>> MakeAnd(const OpSpec& spec) {
  return MakeComparison(spec, Comparison::kAnd);
}

}  // namespace syncline::worker
