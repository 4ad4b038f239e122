#include "worker/ops/reduce.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/elementwise/binary_loop.h"
#include "worker/ops/axes.h"

namespace syncline::worker {
namespace {

class ReduceOp : public Op {
 public:
  ReduceOp(Broadcast shape, float scale)
      : Op(Traits()), shape_(std::move(shape)), scale_(scale) {}

  absl::Status Forward(const Tensors& t) override {
    const float* const x = t.in(0);
    float* const y = t.out(0);
    std::fill(y, y + shape_.b_count, 0.0f);
    AddUpGradient(shape_, Side::kB, y,
                  [x](int64_t, int64_t a, int64_t) { return x[a]; });
    if (scale_ != 1) {
      for (int64_t i = 0; i < shape_.b_count; ++i) y[i] *= scale_;
    }
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors&, const Gradients& g) override {
    const float* const dy = g.out();
    ForEachRow(shape_, [&](auto, auto sb, int64_t, int64_t a, int64_t b) {
      Emit(shape_.inner, g.accumulate(0), g.in(0) + a,
           [&](int64_t i) { return dy[b + i * sb] * scale_; });
    });
    return absl::OkStatus();
  }

 private:
  const Broadcast shape_;
  const float scale_;
};

absl::StatusOr<Dims> ReducedDims(const OpSpec& spec) {
  SYNCLINE_ASSIGN_OR_RETURN(const std::vector<int64_t> axes, AxesOf(spec));
  Dims dims = spec.input(0).dims;
  if (!axes.empty()) {
    for (const int64_t axis : axes) dims[axis] = 1;
  } else if (spec.node->Int("noop_with_empty_axes", 0) == 0) {
    dims.assign(dims.size(), 1);
  }
  return dims;
}

absl::Status RequireFloatData(const OpSpec& spec) {
  const TensorType& input = spec.input(0);
  if (input.dtype == DType::kFloat32) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "input 0 is ", DTypeName(input.dtype), "; only float32 is computed"));
}

absl::StatusOr<Broadcast> ShapeTo(const OpSpec& spec, const Dims& reduced) {
  const TensorType& input = spec.input(0);
  if (ElementCount(reduced) != spec.output(0).count()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "reducing ", DimsToString(input.dims), " to ", DimsToString(reduced),
        " does not give ", DimsToString(spec.output(0).dims)));
  }
  return MakeBroadcast(input.dims, reduced);
}

}  // namespace

absl::StatusOr<Broadcast> ReductionShapeOfAny(const OpSpec& spec) {
  SYNCLINE_ASSIGN_OR_RETURN(const Dims reduced, ReducedDims(spec));
  return ShapeTo(spec, reduced);
}

absl::StatusOr<Broadcast> ReductionShape(const OpSpec& spec) {
  SYNCLINE_RETURN_IF_ERROR(RequireFloatData(spec));
  return ReductionShapeOfAny(spec);
}

absl::StatusOr<std::unique_ptr<Op>> MakeReduce(const OpSpec& spec,
                                               Reduction reduction) {
  SYNCLINE_ASSIGN_OR_RETURN(const Dims reduced, ReducedDims(spec));
  return MakeReduceTo(spec, reduced, reduction);
}

absl::StatusOr<std::unique_ptr<Op>> MakeReduceTo(const OpSpec& spec,
                                                 const Dims& reduced,
                                                 Reduction reduction) {
  SYNCLINE_RETURN_IF_ERROR(RequireFloatData(spec));
  SYNCLINE_ASSIGN_OR_RETURN(Broadcast shape, ShapeTo(spec, reduced));
  const int64_t merged = std::max<int64_t>(ElementCount(reduced), 1);
  const float scale =
      reduction == Reduction::kMean
          ? static_cast<float>(merged) / static_cast<float>(shape.a_count)
          : 1.0f;
  return std::make_unique<ReduceOp>(std::move(shape), scale);
}

}  // namespace syncline::worker
