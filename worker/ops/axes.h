#ifndef SYNCLINE_WORKER_OPS_AXES_H_
#define SYNCLINE_WORKER_OPS_AXES_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/ops/op.h"

namespace syncline::worker {

// A dimension of a tensor of `rank` dimensions, counted from the end if
// negative. Errors: InvalidArgument: there is none.
absl::StatusOr<int64_t> ResolveAxis(int64_t axis, size_t rank);

// The axes of a node that has them as its second input (which must be constant
// then) or as the attribute "axes", resolved against input 0; empty if it has
// neither. Errors: InvalidArgument: not constant, not int64, out of range.
absl::StatusOr<std::vector<int64_t>> AxesOf(const OpSpec& spec);

// A tensor around one of its axes.
struct AroundAxis {
  int64_t outer = 1;
  int64_t n = 1;
  int64_t inner = 1;
};
AroundAxis SplitAt(const Dims& dims, int64_t axis);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_OPS_AXES_H_
