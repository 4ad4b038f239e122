#ifndef SYNCLINE_WORKER_OPS_SCATTER_H_
#define SYNCLINE_WORKER_OPS_SCATTER_H_

#include "worker/ops/indexed.h"
#include "worker/ops/op.h"

namespace syncline::worker {

// An operator whose output is its first input, with the runs of the third one
// at the places that the second one says: in place of what is there, or reduced
// with it as the attribute "reduction" says (scatter_reduction.h). float32. Of
// runs that replace the same place the last one counts, and has the gradient;
// ONNX leaves that open. REQUIRES: places of runs are multiples of their
// length.
absl::StatusOr<std::unique_ptr<Op>> MakeScatter(const OpSpec& spec,
                                                IndexedShape shape);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_OPS_SCATTER_H_
