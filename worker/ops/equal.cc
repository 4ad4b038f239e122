#include "worker/ops/compare.h"

namespace syncline::worker {

absl::StatusOr<std::unique_ptr<Op>> MakeEqual(const OpSpec& spec) {
  return MakeComparison(spec, Comparison::kEqual);
}

}  // namespace syncline::worker
