#include "worker/ops/compare.h"

namespace syncline {

absl::StatusOr<std::unique_ptr<Op>> MakeLess(const OpSpec& spec) {
  return MakeComparison(spec, Comparison::kLess);
}

}  // namespace syncline
