#include "worker/ops/reduce.h"

namespace syncline::worker {

absl::StatusOr<std::unique_ptr<Op>> MakeReduceMean(const OpSpec& spec) {
  return MakeReduce(spec, Reduction::kMean);
}

}  // namespace syncline::worker
