#include "kernels/softmax.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/threads.h"
#include "worker/ops/op.h"

namespace syncline::worker {
namespace {

struct SoftmaxKernels {
  void (*forward)(const SoftmaxShape& s, const float* x, float* y);
  void (*backward)(const SoftmaxShape& s, const float* y, const float* dy,
                   bool accumulate, float* dx);
};

class SoftmaxOp : public Op {
 public:
  SoftmaxOp(const SoftmaxShape& shape, const SoftmaxKernels& kernels)
      : Op({.backward_outputs = 1,
            .in_place_input = 0,
            .gradient_in_place = true}),
        shape_(shape),
        kernels_(kernels) {}

  absl::Status Forward(const Tensors& t) override {
    ForParts([&](const SoftmaxShape& part, int64_t at) {
      kernels_.forward(part, t.in(0) + at, t.out(0) + at);
    });
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    ForParts([&](const SoftmaxShape& part, int64_t at) {
      kernels_.backward(part, t.out(0) + at, g.out() + at, g.accumulate(0),
                        g.in(0) + at);
    });
    return absl::OkStatus();
  }

 private:
  // Calls run(part, offset) for what each thread has of the lines.
  template <typename Run>
  void ForParts(Run run) const {
    const int64_t row = shape_.n * shape_.inner;
    ParallelForRows(shape_.outer, row, [&](int64_t begin, int64_t end) {
      run(SoftmaxShape{end - begin, shape_.n, shape_.inner}, begin * row);
    });
  }

  const SoftmaxShape shape_;
  const SoftmaxKernels kernels_;
};

absl::StatusOr<SoftmaxShape> ShapeOf(const Node& node, const Dims& dims) {
  const bool one_axis = node.since_version >= 13;
  const int64_t rank = static_cast<int64_t>(dims.size());
  int64_t axis = node.Int("axis", one_axis ? -1 : 1);
  // Before opset 13 the axis may be the rank: lines of one element.
  if (axis < -rank || axis > rank || (one_axis && axis >= rank)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "axis ", axis, " is outside the input's ", rank, " dimensions"));
  }
  if (axis < 0) axis += rank;
  const absl::Span<const int64_t> all(dims);
  SoftmaxShape shape;
  shape.outer = ElementCount(all.first(axis));
  shape.n = one_axis ? dims[axis] : ElementCount(all.subspan(axis));
  shape.inner = one_axis ? ElementCount(all.subspan(axis + 1)) : 1;
  return shape;
}

// Softmax and LogSoftmax. From opset 13 on along `axis` (default -1); before,
// over all dimensions from `axis` (default 1) on, seen as one.
absl::StatusOr<std::unique_ptr<Op>> MakeSoftmaxOp(
    const OpSpec& spec, const SoftmaxKernels& kernels) {
  SYNCLINE_RETURN_IF_ERROR(spec.RequireFloat32());
  SYNCLINE_ASSIGN_OR_RETURN(const SoftmaxShape shape,
                            ShapeOf(*spec.node, spec.input(0).dims));
  return std::make_unique<SoftmaxOp>(shape, kernels);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeSoftmax(const OpSpec& spec) {
  return MakeSoftmaxOp(spec, {Softmax, SoftmaxGradient});
}

absl::StatusOr<std::unique_ptr<Op>> MakeLogSoftmax(const OpSpec& spec) {
  return MakeSoftmaxOp(spec, {LogSoftmax, LogSoftmaxGradient});
}

}  // namespace syncline::worker
