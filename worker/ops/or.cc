#include "worker/ops/compare.h"

namespace syncline::worker {

absl::StatusOr<std::unique_ptr<Op>> MakeOr(const OpSpec& spec) {
  return MakeComparison(spec, Comparison::kOr);
}

}  // namespace syncline::worker
