#include "worker/ops/reduce.h"

namespace syncline {

absl::StatusOr<std::unique_ptr<Op>> MakeReduceSum(const OpSpec& spec) {
  return MakeReduce(spec, Reduction::kSum);
}

}  // namespace syncline
