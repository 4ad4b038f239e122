// Gather, GatherElements and GatherND.

#include <algorithm>
#include <cstring>
#include <utility>

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
  const GatherKernels* const kernels = spec.kernels().gather;
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(kernels));
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(
      kernels->forward, kernels->backward, kernels->backward_scratch_bytes));
  return std::make_unique<GatherOp>(shape, *kernels);
}

namespace {

// An operator whose output is runs of its first input, at the places that the
// second one says. Any dtype. In the gradient what repeats adds up in order.
// REQUIRES: places of runs are multiples of their length.
class IndexedOp : public Op {
 public:
  // The workspace has where each run begins.
  IndexedOp(const OpSpec& spec, IndexedShape shape)
      : Op({.workspace_bytes =
                static_cast<int64_t>(shape.runs * sizeof(int64_t)),
            .backward_scratch_bytes = AddingScratchBytes(shape)}),
        element_bytes_(DTypeBytes(spec.input(0).dtype)),
        data_count_(spec.input(0).count()),
        places_(spec.input(1), std::move(shape)) {}

  absl::Status Forward(const Tensors& t) override {
    auto* const begins = static_cast<int64_t*>(t.workspace);
    SYNCLINE_RETURN_IF_ERROR(places_.Find(t.inputs[1], begins));
    const size_t bytes = places_.run_length() * element_bytes_;
    const char* const x = static_cast<const char*>(t.inputs[0]);
    char* y = static_cast<char*>(t.outputs[0]);
    for (int64_t i = 0; i < places_.runs(); ++i, y += bytes) {
      std::memcpy(y, x + begins[i] * element_bytes_, bytes);
    }
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    if (!g.accumulate(0)) std::fill_n(g.in(0), data_count_, 0.0f);
    const auto* const begins = static_cast<const int64_t*>(t.workspace);
    places_.Add(begins, data_count_, g.out(), g.in(0), t.scratch);
    return absl::OkStatus();
  }

 private:
  const size_t element_bytes_;
  const int64_t data_count_;
  RunPlaces places_;
};

absl::StatusOr<std::unique_ptr<Op>> MakeIndexed(const OpSpec& spec,
                                                IndexedShape shape) {
  SYNCLINE_RETURN_IF_ERROR(RunPlaces::Check(spec.input(1)));
  return std::make_unique<IndexedOp>(spec, std::move(shape));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeGatherElements(const OpSpec& spec) {
  const Dims& data = spec.input(0).dims;
  SYNCLINE_ASSIGN_OR_RETURN(
      const int64_t axis, ResolveAxis(spec.node->Int("axis", 0), data.size()));
  SYNCLINE_ASSIGN_OR_RETURN(IndexedShape shape,
                            ElementsAlong(data, spec.input(1).dims, axis));
  return MakeIndexed(spec, std::move(shape));
}

absl::StatusOr<std::unique_ptr<Op>> MakeGatherND(const OpSpec& spec) {
  SYNCLINE_ASSIGN_OR_RETURN(IndexedShape shape,
                            PartsByTuple(spec.input(0).dims, spec.input(1).dims,
                                         spec.node->Int("batch_dims", 0)));
  return MakeIndexed(spec, std::move(shape));
}

}  // namespace syncline::worker
