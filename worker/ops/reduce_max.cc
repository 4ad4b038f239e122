#include "worker/ops/reduce_extremum.h"

namespace syncline {

absl::StatusOr<std::unique_ptr<Op>> MakeReduceMax(const OpSpec& spec) {
  return MakeReduceExtremum(spec, /*largest=*/true);
}

}  // namespace syncline
