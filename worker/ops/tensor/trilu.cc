#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/device/kernel_table.h"
#include "kernels/device/triangle_kernels.h"
#include "worker/ops/tensor/strided_copy.h"

namespace syncline::worker {
namespace {

class TriluOp : public Op {
 public:
  TriluOp(const TriangleShape& shape, const TriangleKernels& kernels,
          size_t element_bytes)
      : Op({.in_place_input = 0, .gradient_in_place = true}),
        shape_(shape),
        kernels_(kernels),
        element_bytes_(element_bytes) {}

  absl::Status Forward(const Tensors& t) override {
    kernels_.forward(*t.stream, shape_, element_bytes_, t.inputs[0],
                     t.outputs[0]);
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    kernels_.backward(*t.stream, shape_, g.out(), g.accumulate(0), g.in(0));
    return absl::OkStatus();
  }

 private:
  const TriangleShape shape_;
  const TriangleKernels kernels_;
  const size_t element_bytes_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeTrilu(const OpSpec& spec) {
  const Dims& dims = spec.input(0).dims;
  if (dims.size() < 2) {
    return absl::InvalidArgumentError(absl::StrCat(
        "input 0 is ", DimsToString(dims), "; it must be a matrix or more"));
  }
  TriangleShape shape;
  shape.columns = dims.back();
  shape.rows = dims[dims.size() - 2];
  shape.matrices =
      ElementCount(absl::MakeConstSpan(dims).first(dims.size() - 2));
  shape.upper = spec.node->Int("upper", 1) != 0;
  if (spec.input(1).present) {
    SYNCLINE_ASSIGN_OR_RETURN(const std::vector<int64_t> k,
                              ConstantInts(spec.input(1), "k"));
    if (k.size() != 1)
      return absl::InvalidArgumentError("k must be one number");
    // Beyond the matrix all are the same.
    const int64_t most = shape.rows + shape.columns;
    shape.diagonal = std::clamp(k[0], -most, most);
  }
  SYNCLINE_RETURN_IF_ERROR(spec.RequireOneType(0b1));
  const TriangleKernels* const kernels = spec.kernels().triangle;
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(kernels));
  SYNCLINE_RETURN_IF_ERROR(
      spec.RequireKernels(kernels->forward, kernels->backward));
  return std::make_unique<TriluOp>(shape, *kernels,
                                   DTypeBytes(spec.input(0).dtype));
}

}  // namespace syncline::worker
