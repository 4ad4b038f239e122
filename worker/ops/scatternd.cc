#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/loop.h"
#include "worker/ops/op.h"

namespace syncline {
namespace {

// updates [tuples, inner] are added to the parts of data that the index tuples
// name: a part is data[tuple, ...], of `inner` elements.
struct ScatterShape {
  int64_t count = 0;  // elements of data
  int64_t tuples = 0;
  int64_t inner = 1;
  Dims indexed;  // the dimensions that a tuple has an index for
};

class ScatterNDOp : public Op {
 public:
  explicit ScatterNDOp(ScatterShape shape)
      : Op({.backward_inputs = 0b010, .gradient_in_place = true}),
        shape_(std::move(shape)) {}

  absl::Status Forward(const Tensors& t) override {
    std::memcpy(t.out(0), t.in(0), shape_.count * sizeof(float));
    for (int64_t i = 0; i < shape_.tuples; ++i) {
      SYNCLINE_ASSIGN_OR_RETURN(const int64_t part, PartOf(t, i));
      const float* const update = t.in(2) + i * shape_.inner;
      Emit(shape_.inner, /*accumulate=*/true, t.out(0) + part,
           [&](int64_t k) { return update[k]; });
    }
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    if (g.in(2) != nullptr) {
      for (int64_t i = 0; i < shape_.tuples; ++i) {
        SYNCLINE_ASSIGN_OR_RETURN(const int64_t part, PartOf(t, i));
        const float* const dy = g.out() + part;
        Emit(shape_.inner, g.accumulate(2), g.in(2) + i * shape_.inner,
             [&](int64_t k) { return dy[k]; });
      }
    }
    if (g.in(0) != nullptr) {
      const float* const dy = g.out();
      Emit(shape_.count, g.accumulate(0), g.in(0),
           [&](int64_t k) { return dy[k]; });
    }
    return absl::OkStatus();
  }

 private:
  // Offset of the part that tuple `i` names.
  absl::StatusOr<int64_t> PartOf(const Tensors& t, int64_t i) const {
    const int64_t width = static_cast<int64_t>(shape_.indexed.size());
    const auto* const tuple =
        static_cast<const int64_t*>(t.inputs[1]) + i * width;
    int64_t part = 0;
    for (int64_t d = 0; d < width; ++d) {
      const int64_t n = shape_.indexed[d];
      const int64_t at = tuple[d] < 0 ? tuple[d] + n : tuple[d];
      if (at < 0 || at >= n) {
        return absl::InvalidArgumentError(
            absl::StrCat("index ", tuple[d], " in tuple ", i,
                         " is outside a dimension of ", n));
      }
      part = part * n + at;
    }
    return part * shape_.inner;
  }

  const ScatterShape shape_;
};

absl::StatusOr<ScatterShape> ShapeOf(const Dims& data, const Dims& indices,
                                     const Dims& updates) {
  const auto refuse = [&] {
    return absl::InvalidArgumentError(absl::StrCat(
        "data ", DimsToString(data), ", indices ", DimsToString(indices),
        " and updates ", DimsToString(updates), " do not fit"));
  };
  if (indices.empty() || indices.back() < 1 ||
      indices.back() > static_cast<int64_t>(data.size())) {
    return refuse();
  }
  const int64_t width = indices.back();
  Dims wanted(indices.begin(), indices.end() - 1);
  wanted.insert(wanted.end(), data.begin() + width, data.end());
  if (updates != wanted) return refuse();
  ScatterShape shape;
  shape.count = ElementCount(data);
  shape.tuples = ElementCount(indices) / width;
  shape.indexed.assign(data.begin(), data.begin() + width);
  shape.inner = ElementCount(absl::MakeSpan(data).subspan(width));
  return shape;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeScatterND(const OpSpec& spec) {
  const std::string reduction = spec.node->String("reduction", "none");
  if (reduction != "add") {
    return absl::InvalidArgumentError(absl::StrCat(
        "reduction is \"", reduction, "\"; only \"add\" is computed"));
  }
  if (spec.input(0).dtype != DType::kFloat32 ||
      spec.input(2).dtype != DType::kFloat32) {
    return absl::InvalidArgumentError("only float32 is computed");
  }
  SYNCLINE_ASSIGN_OR_RETURN(
      ScatterShape shape,
      ShapeOf(spec.input(0).dims, spec.input(1).dims, spec.input(2).dims));
  return std::make_unique<ScatterNDOp>(std::move(shape));
}

}  // namespace syncline
