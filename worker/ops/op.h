#ifndef SYNCLINE_WORKER_OPS_OP_H_
#define SYNCLINE_WORKER_OPS_OP_H_

// The executor's interface to an operator. One Op is one node of the graph for
// one batch size on one device: made when the plan is made, with concrete
// shapes, and run many times without allocating.
//
// An Op is the same on all devices. Its factory resolves the node to plain
// descriptors; Forward and Backward call the kernels of the device with them
// (kernels/device). The tensors lie in memory of the device: an Op passes their
// addresses on, and never reads or writes what is there.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/model/graph/node.h"
#include "common/model/graph/tensor.h"
#include "kernels/device/data_error.h"
#include "kernels/device/device.h"
#include "kernels/device/floats.h"
#include "kernels/device/step_numbers.h"

namespace syncline::worker {

class StatisticsExchange;

// One input or output of a node, when the plan is made.
struct TensorType {
  bool present = false;  // false: an optional one that the node omits
  DType dtype = DType::kFloat32;
  // Of its gradient, if it has one. A value that was rounded to 16 bits shares
  // the float32 gradient of the value that it was rounded from.
  DType gradient_dtype = DType::kFloat32;
  Dims dims;
  // 1: row-major. Else [N, C / block, spatial..., block]; only operators that
  // know of it (layout_assignment.h) are given such.
  int64_t channel_block = 1;
  // The value's bytes if it is a constant or an initializer that is not
  // trained, else null. In memory of the host. Borrowed for the Op's life.
  const void* constant = nullptr;

  int64_t count() const { return ElementCount(dims); }
};

// The arguments of a factory.
struct OpSpec {
  const Node* node = nullptr;       // outlives the Op
  Device* device = nullptr;         // likewise
  std::vector<TensorType> inputs;   // as many as the operator's schema may have
  std::vector<TensorType> outputs;  // are asked for through input() below
  std::vector<bool> wants_gradient;  // by input; none: forward only
  bool training = false;             // Dropout drops
  int64_t samples = 1;               // in the batch, or its part
  bool is_short = false;             // no part of a full batch is as small
  // Statistics of the batch are those of all workers' batches.
  bool folds_statistics = false;
  // Inputs 0 and 1 and the gradient of output 0 are 16-bit numbers, widened to
  // float32 (widened_op.h).
  bool has_narrow_factors = false;

  // Types past the end are absent ones.
  const TensorType& input(size_t i) const;
  const TensorType& output(size_t i) const;
  bool WantsGradient(size_t i) const {
    return i < wants_gradient.size() && wants_gradient[i];
  }
  bool WantsAnyGradient() const {
    return std::find(wants_gradient.begin(), wants_gradient.end(), true) !=
           wants_gradient.end();
  }
  const KernelTable& kernels() const { return device->kernels(); }
  // float32, or a 16-bit type in which the device computes the operator.
  bool Computes(DType type) const;
  // Errors: InvalidArgument: an input that is present is of no such type.
  absl::Status RequireFloat32() const;
  // For what moves elements as they are. Errors: Unimplemented: one of these
  // inputs, as HasPosition (operator_list.h) counts them, and the outputs are
  // floats of two types.
  absl::Status RequireOneType(uint32_t moved_inputs) const;
  // For what normalises data with numbers of channels. Errors: Unimplemented:
  // an input or an output beside the first one, or its gradient, has a 16-bit
  // type.
  absl::Status RequireOthersFloat32() const;
  // True if an input, an output or a gradient has a 16-bit type.
  bool HasNarrowTypes() const;
  // Errors: InvalidArgument, naming the device: one of `kernels`, families and
  // functions of them, is null.
  template <typename... Kernel>
  absl::Status RequireKernels(Kernel... kernels) const {
    return (... && (kernels != nullptr)) ? absl::OkStatus() : NoKernel();
  }

 private:
  absl::Status NoKernel() const;
};

class Op {
 public:
  // The facts that the memory plan needs.
  struct Traits {
    // The inputs and outputs that Backward reads, as HasPosition
    // (operator_list.h) counts them; anything else may be gone by then.
    uint32_t backward_inputs = 0;
    uint32_t backward_outputs = 0;
    // Bytes that Forward leaves for Backward, 64-byte aligned.
    int64_t workspace_bytes = 0;
    // Bytes, 64-byte aligned, that Forward and Backward each have to themselves
    // while they run. Their contents before a call do not matter.
    int64_t forward_scratch_bytes = 0;
    int64_t backward_scratch_bytes = 0;
    // Output 0 may be written over this input, element by element; -1: none.
    int in_place_input = -1;
    // Output 0 is input 0 under another shape: where they share memory there
    // is nothing to run, forward or backward.
    bool is_view = false;
    // The gradient of input 0 may be written over that of output 0.
    bool gradient_in_place = false;
    // Forward and Backward wait for the stream, and for other workers
    // (Tensors.statistics): no graph can hold them.
    bool folds_statistics = false;
  };

  // Memory of one run; null where a value is omitted or unused. In Backward,
  // what is not declared as read may hold something else by then.
  struct Tensors {
    absl::Span<const void* const> inputs;
    absl::Span<void* const> outputs;
    void* workspace = nullptr;
    void* scratch = nullptr;   // of this call
    Stream* stream = nullptr;  // never null when an Op runs
    ErrorSlot errors = {};     // of this node
    // For what is random: the numbers of the step, in memory of the device, and
    // that of the node.
    const StepNumbers* numbers = nullptr;
    uint64_t node = 0;
    // Of this step, where the Op folds statistics; null: of this batch alone.
    StatisticsExchange* statistics = nullptr;
    // Forward has been run in this step, on the same inputs.
    bool again = false;
    // Of arrays of floats; past the end: float32. CreateTypedOp's Ops fill them
    // in (widened_op.h).
    absl::Span<const DType> input_types = {};
    absl::Span<const DType> output_types = {};

    ConstFloats in(size_t i) const {
      return i < inputs.size() ? ConstFloats(inputs[i], At(input_types, i))
                               : nullptr;
    }
    Floats out(size_t i) const {
      return i < outputs.size() ? Floats(outputs[i], At(output_types, i))
                                : nullptr;
    }
  };
  // Each has the type that its TensorType says: float32 unless there are types
  // below.
  struct Gradients {
    // Of the outputs; null: zero. Where a gradient flows from the first output
    // alone (op_table.h), that one's is always there; else at least one is.
    absl::Span<const float* const> outputs;
    // Of the inputs; null: not wanted. Written from the last input to the
    // first, because the first may lie over output 0's, and because one value
    // may be several inputs.
    absl::Span<float* const> inputs;
    // By input; past the end: false. True: add to what is there (another reader
    // of the value has written it already); else overwrite.
    absl::Span<const bool> accumulates;
    // As those of Tensors.
    absl::Span<const DType> output_types = {};
    absl::Span<const DType> input_types = {};

    ConstFloats out(size_t i = 0) const {
      return i < outputs.size() ? ConstFloats(outputs[i], At(output_types, i))
                                : nullptr;
    }
    Floats in(size_t i) const {
      return i < inputs.size() ? Floats(inputs[i], At(input_types, i))
                               : nullptr;
    }
    bool accumulate(size_t i) const {
      return i < accumulates.size() && accumulates[i];
    }
  };

  virtual ~Op() = default;

  const Traits& traits() const { return traits_; }
  // Put the work into the stream. Errors, not retried: Internal from a library.
  // An index that is out of range goes to the error slot.
  virtual absl::Status Forward(const Tensors& t) = 0;
  // Follows a Forward of the same step. Called only if an input wants a
  // gradient.
  virtual absl::Status Backward(const Tensors& t, const Gradients& g) = 0;
  // The error that a kernel of this Op has reported, in words: InvalidArgument.
  virtual absl::Status Explain(const DataError& error) const;

 protected:
  explicit Op(const Traits& traits) : traits_(traits) {}

 private:
  static DType At(absl::Span<const DType> types, size_t i) {
    return i < types.size() ? types[i] : DType::kFloat32;
  }

  const Traits traits_;
};

// Makes a node's Op. Errors, without the node's name, which the caller adds:
// InvalidArgument: an attribute, dtype or shape that the operator does not
// have; Unimplemented: 16-bit types that the operator's kernels could not take
// together, or not with one rounding: it is to be widened (widened_op.h).
using OpFactory = absl::StatusOr<std::unique_ptr<Op>>(const OpSpec& spec);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_OPS_OP_H_
