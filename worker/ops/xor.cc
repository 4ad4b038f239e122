#include "worker/ops/compare.h"

namespace syncline::worker {

absl::StatusOr<std::unique_ptr<Op>> MakeXor(const OpSpec& spec) {
  return MakeComparison(spec, Comparison::kXor);
}

}  // namespace syncline::worker
