#include "worker/ops/reduce_extremum.h"

namespace syncline {

absl::StatusOr<std::unique_ptr<Op>> MakeReduceMin(const OpSpec& spec) {
  return MakeReduceExtremum(spec, /*largest=*/false);
}

}  // namespace syncline
