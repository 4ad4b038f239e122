#include "worker/ops/compare.h"

namespace syncline {

absl::StatusOr<std::unique_ptr<Op>> MakeOr(const OpSpec& spec) {
  return MakeComparison(spec, Comparison::kOr);
}

}  // namespace syncline
