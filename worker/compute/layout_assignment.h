#ifndef SYNCLINE_WORKER_COMPUTE_LAYOUT_ASSIGNMENT_H_
#define SYNCLINE_WORKER_COMPUTE_LAYOUT_ASSIGNMENT_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/model/graph/node.h"
#include "common/model/graph/tensor.h"
#include "worker/compute/backward_graph.h"

namespace syncline {
struct Graph;
}  // namespace syncline

namespace syncline::worker {

// Convolutions are computed fastest where a block of neighbouring channels is
// innermost: [N, C, spatial...] as [N, C / block, spatial..., block]. A value
// in row-major order is rewritten by each convolution that reads or writes it.
// One that goes from convolution to convolution, or to a pool, through
// operators that do not care for the order of elements, is kept in blocks
// instead, its gradient too.
//
// By ValueId: the channels of a block, 1 for row-major values. Values of one
// node that are of one shape have one layout. Values that no node of `flow`
// makes (they are fed) and the loss's output are row-major. `block` is the size
// that convolutions prefer. `shapes` are those of the step.
std::vector<int64_t> AssignLayouts(const Graph& graph,
                                   const BackwardGraph& flow,
                                   absl::Span<const Dims> shapes,
                                   ValueId loss_output, int64_t block);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_COMPUTE_LAYOUT_ASSIGNMENT_H_
