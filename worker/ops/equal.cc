#include "worker/ops/compare.h"

namespace syncline {

absl::StatusOr<std::unique_ptr<Op>> MakeEqual(const OpSpec& spec) {
  return MakeComparison(spec, Comparison::kEqual);
}

}  // namespace syncline
