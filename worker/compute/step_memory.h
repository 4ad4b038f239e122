#ifndef SYNCLINE_WORKER_COMPUTE_STEP_MEMORY_H_
#define SYNCLINE_WORKER_COMPUTE_STEP_MEMORY_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "common/model/graph/memory_plan.h"
#include "common/model/graph/node.h"
#include "common/model/graph/tensor.h"
#include "worker/compute/backward_graph.h"
#include "worker/ops/op.h"

namespace syncline {
struct Graph;
}  // namespace syncline

namespace syncline::worker {

// Where bytes are during a step.
struct Place {
  enum class Kind {
    kNone,          // nowhere: omitted or never read
    kArena,         // `index` is a buffer of the arena
    kFeed,          // `index` is a feed of the batch
    kParameter,     // `index` is a parameter
    kGradient,      // `index` is a parameter, whose gradient is meant
    kRows,          // `index` is a table: the batch's rows of it
    kRowGradients,  // `index` is a table, likewise; always added to
    kConstant,      // at `constant`
  };
  Kind kind = Kind::kNone;
  int index = -1;
  const void* constant = nullptr;

  bool operator==(const Place&) const = default;
};

// Memory of a parameter's gradient, among that of all.
struct GradientMemory {
  int64_t offset = 0;
  int64_t bytes = 0;
  // Other things may be there until a training step writes it. REQUIRES: each
  // does.
  bool is_lent = false;
  // It is in the arena instead, from the step that first writes it to the one
  // after which it is final; offset and bytes are of no memory then but its
  // own size. REQUIRES: is_lent.
  bool is_transient = false;
};

// Where every value, gradient and workspace of a step is, for one batch size.
// With F nodes the steps are: F forward ones, the loss, F backward ones in
// reverse; where segments are recomputed (rematerialization.h), each one's
// backward steps come after those that run again.
struct StepMemory {
  // Flags that a Span can show, unlike std::vector<bool>'s.
  using Flags = absl::InlinedVector<bool, 8>;
  struct Backward {
    bool runs = false;
    // By input; kNone: not wanted. Written in this step.
    std::vector<Place> input_gradients;
    // By output; kNone: it has none, which means zero.
    std::vector<Place> output_gradients;
    // By input: added to what is there, else written over it.
    Flags accumulates;
    Place scratch;
  };
  std::vector<Place> values;           // by ValueId
  std::vector<Place> workspaces;       // by position
  std::vector<Place> forward_scratch;  // by position
  std::vector<bool> runs_forward;      // by position: false where memory is
                                       // shared and there is nothing to do
  std::vector<Backward> backward;      // by position
  // The steps after the loss.
  struct Step {
    int position = 0;
    bool again = false;  // forward once more; else backward
  };
  std::vector<Step> after_loss;
  // Places that the steps after the loss read and write: as above, or a second
  // copy.
  std::vector<Place> again_values;      // by ValueId
  std::vector<Place> again_workspaces;  // by position
  std::vector<Place> again_scratch;     // by position: of the forward pass
  Place loss_gradient;                  // kNone: the loss has none
  // Of the arena; behind those that places name, the gradients' memory.
  std::vector<BufferLifetime> buffers;
  // By parameter: the first step (>= the loss's) after which its gradient is
  // final and it is not read again.
  std::vector<int> ready_steps;
  // By parameter: the buffer of its gradient; -1: it is not transient.
  std::vector<int> gradient_buffers;
  // By parameter: the first step that reads it, itself or a view of it; the
  // loss's if no forward step does.
  std::vector<int> first_reads;
  // By step: the parameters whose values it reads, themselves or views of them,
  // each once.
  std::vector<std::vector<int>> parameter_reads;
};

// The input of StepMemory.
struct StepMemorySpec {
  const Graph* graph = nullptr;
  // That has the values of initializers; null: `graph` has them.
  const Graph* model = nullptr;
  const BackwardGraph* flow = nullptr;
  // By ValueId: the value whose gradient is also its own (dtype_overlay.h);
  // empty: each has its own.
  absl::Span<const ValueId> sources = {};
  absl::Span<const Dims> shapes;              // by ValueId
  absl::Span<const std::unique_ptr<Op>> ops;  // by position in flow->nodes
  absl::Span<const ValueId> feeds;
  absl::Span<const ValueId> parameters;
  absl::Span<const GradientMemory> gradients = {};  // by parameter, or none
  absl::Span<const ValueId> tables = {};
  // By ValueId: where values that are folded are; may be empty.
  absl::Span<const std::shared_ptr<const ConstantTensor>> folded = {};
  ValueId loss_output = kNoValue;
  int recompute_segments = 1;

  int loss_step() const { return static_cast<int>(flow->nodes.size()); }
};

StepMemory PlanStepMemory(const StepMemorySpec& spec);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_COMPUTE_STEP_MEMORY_H_
