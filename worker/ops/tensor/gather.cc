// Gather, GatherElements and GatherND.

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/device/gather_kernels.h"
#include "kernels/device/kernel_table.h"
#include "worker/ops/axes.h"
#include "worker/ops/op.h"
#include "worker/ops/tensor/indexed.h"

namespace syncline::worker {
namespace {

class GatherOp : public Op {
 public:
  GatherOp(const GatherShape& shape, const GatherKernels& kernels)
      : Op({.backward_inputs = 0b10,
            .backward_scratch_bytes = kernels.backward_scratch_bytes(shape)}),
        shape_(shape),
        kernels_(kernels) {}

  absl::Status Forward(const Tensors& t) override {
    kernels_.forward(*t.stream, shape_, t.inputs[0], t.inputs[1], t.outputs[0],
                     t.errors);
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    kernels_.backward(*t.stream, shape_, t.inputs[1], g.out(), g.accumulate(0),
                      g.in(0), t.scratch);
    return absl::OkStatus();
  }

  absl::Status Explain(const DataError& error) const override {
    return absl::InvalidArgumentError(
        absl::StrCat("index ", error.value, ", number ", error.position, " of ",
                     shape_.indices, ", is outside a dimension of ", shape_.n));
  }

 private:
  const GatherShape shape_;
  const GatherKernels kernels_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeGather(const OpSpec& spec) {
  const TensorType& data = spec.input(0);
  const TensorType& indices = spec.input(1);
  if (indices.dtype != DType::kInt64 && indices.dtype != DType::kInt32) {
    return absl::InvalidArgumentError(
        absl::StrCat("indices are ", DTypeName(indices.dtype),
                     "; they must be int32 or int64"));
  }
  SYNCLINE_ASSIGN_OR_RETURN(
      const int64_t axis,
      ResolveAxis(spec.node->Int("axis", 0), data.dims.size()));
  const AroundAxis around = SplitAt(data.dims, axis);
  const GatherShape shape = {.outer = around.outer,
                             .n = around.n,
                             .inner = around.inner,
                             .indices = indices.count(),
                             .index_type = indices.dtype,
                             .element_bytes = DTypeBytes(data.dtype)};
  SYNCLINE_RETURN_IF_ERROR(spec.RequireOneType(0b1));
  const GatherKernels* const kernels = spec.kernels().gather;
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(kernels));
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(
      kernels->forward, kernels->backward, kernels->backward_scratch_bytes));
  return std::make_unique<GatherOp>(shape, *kernels);
}

namespace {

// An operator whose output is runs of its first input, at the places that the
// second one says. Any dtype. In the gradient what repeats adds up in order.
class IndexedOp : public Op {
 public:
  // The workspace has where each run begins.
  IndexedOp(const OpSpec& spec, const IndexedShape& shape,
            const IndexedKernels& kernels)
      : Op({.workspace_bytes =
                static_cast<int64_t>(shape.runs * sizeof(int64_t)),
            .backward_scratch_bytes = kernels.add_scratch_bytes(shape)}),
        shape_(shape),
        kernels_(kernels),
        element_bytes_(DTypeBytes(spec.input(0).dtype)) {}

  absl::Status Forward(const Tensors& t) override {
    auto* const begins = static_cast<int64_t*>(t.workspace);
    kernels_.find(*t.stream, shape_, t.inputs[1], begins, t.errors);
    kernels_.gather(*t.stream, shape_, element_bytes_, begins, t.inputs[0],
                    t.outputs[0]);
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    const Floats dx = g.in(0);
    if (!g.accumulate(0)) t.stream->Clear(dx, dx.Bytes(shape_.count));
    kernels_.add(*t.stream, shape_, static_cast<const int64_t*>(t.workspace),
                 g.out(), dx, t.scratch);
    return absl::OkStatus();
  }

  absl::Status Explain(const DataError& error) const override {
    return ExplainIndex(error);
  }

 private:
  const IndexedShape shape_;
  const IndexedKernels kernels_;
  const size_t element_bytes_;
};

absl::StatusOr<std::unique_ptr<Op>> MakeIndexed(const OpSpec& spec,
                                                const IndexedShape& shape) {
  SYNCLINE_RETURN_IF_ERROR(CheckIndexType(spec.input(1)));
  SYNCLINE_RETURN_IF_ERROR(spec.RequireOneType(0b1));
  const IndexedKernels* const kernels = spec.kernels().indexed;
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(kernels));
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(kernels->find, kernels->gather,
                                               kernels->add,
                                               kernels->add_scratch_bytes));
  return std::make_unique<IndexedOp>(spec, shape, *kernels);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeGatherElements(const OpSpec& spec) {
  const TensorType& data = spec.input(0);
  SYNCLINE_ASSIGN_OR_RETURN(
      const int64_t axis,
      ResolveAxis(spec.node->Int("axis", 0), data.dims.size()));
  SYNCLINE_ASSIGN_OR_RETURN(const IndexedShape shape,
                            ElementsAlong(data, spec.input(1), axis));
  return MakeIndexed(spec, shape);
}

absl::StatusOr<std::unique_ptr<Op>> MakeGatherND(const OpSpec& spec) {
  SYNCLINE_ASSIGN_OR_RETURN(const IndexedShape shape,
                            PartsByTuple(spec.input(0), spec.input(1),
                                         spec.node->Int("batch_dims", 0)));
  return MakeIndexed(spec, shape);
}

}  // namespace syncline::worker
