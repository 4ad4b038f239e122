#ifndef SYNCLINE_WORKER_OPS_COMBINE_H_
#define SYNCLINE_WORKER_OPS_COMBINE_H_

#include "worker/ops/op.h"

namespace syncline::worker {

enum class Combination { kSum, kMean, kMax, kMin };

// One result of one or more float32 inputs, element by element, broadcast.
// Among equals the first input is the largest, and the smallest: it alone has
// the gradient. NaN in any input is NaN in the result.
absl::StatusOr<std::unique_ptr<Op>> MakeCombination(const OpSpec& spec,
                                                    Combination combination);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_OPS_COMBINE_H_
