#ifndef SYNCLINE_WORKER_COMPUTE_DTYPE_OVERLAY_H_
#define SYNCLINE_WORKER_COMPUTE_DTYPE_OVERLAY_H_

#include <vector>

#include "absl/types/span.h"
#include "common/base/dtype.h"
#include "common/model/graph/graph.h"
#include "worker/compute/backward_graph.h"

namespace syncline::worker {

// The types that a plan of mixed precision gives to the values of a graph, and
// the casts that it needs. The graph itself stays float32: a model has no
// precision, a plan has.
//
//   - Parameters, feeds, constants and rows of tables are float32: masters.
//   - Where a product reads a float32 value, it reads a 16-bit copy. A copy is
//     made once a pass, just before its first reader, and shared by all. A
//     master that is updated must be there before that cast, and no earlier.
//   - Where anything else reads a 16-bit value, its Op widens it: no step.
//   - A gradient has the type of its value. A copy has no gradient: its readers
//     add to that of the value that it is a copy of, in float32. So the
//     gradients of parameters are float32 sums, and no cast is needed for them.
//   - The loss's output is float32.
struct DTypeOverlay {
  // Values and nodes of the model, under their numbers; then copies, and the
  // nodes that make them (kCastTo16Bits). Value::dtype is the type in this
  // plan. Without the initializers: those are the model's.
  Graph graph;
  // With the casts at their positions; they have no gradients.
  BackwardGraph flow;
  // By ValueId: the value that it is a copy of, or else itself.
  std::vector<ValueId> sources;
};

// The input of DTypeOverlay; the graph is the model's.
struct DTypeOverlaySpec {
  const Graph* graph = nullptr;
  const BackwardGraph* flow = nullptr;
  // That differ from batch to batch: feeds and rows of tables. kNoValue is
  // ignored.
  absl::Span<const ValueId> data;
  ValueId loss_output = kNoValue;
  DType type = DType::kBfloat16;
};

// A pure function of graph and type: all batch sizes and lengths have the same
// types.
DTypeOverlay OverlayDTypes(const DTypeOverlaySpec& spec);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_COMPUTE_DTYPE_OVERLAY_H_
