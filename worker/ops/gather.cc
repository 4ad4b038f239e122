#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/named_rows.h"
#include "worker/ops/axes.h"

namespace syncline::worker {
namespace {

struct GatherShape {
  NamedRows Rows() const { return {data.outer, data.n, indices, data.inner}; }

  AroundAxis data;
  int64_t indices = 1;
  DType index_type = DType::kInt64;
  size_t element_bytes = 4;
};

class GatherOp : public Op {
 public:
  explicit GatherOp(const GatherShape& shape)
      : Op({.backward_inputs = 0b10,
            .backward_scratch_bytes = static_cast<int64_t>(
                NamedRowsScratch(shape.Rows()) * sizeof(uint32_t))}),
        shape_(shape) {}

  absl::Status Forward(const Tensors& t) override {
    return shape_.index_type == DType::kInt64 ? Copy<int64_t>(t)
                                              : Copy<int32_t>(t);
  }

  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    if (shape_.index_type == DType::kInt64) {
      Add<int64_t>(t, g);
    } else {
      Add<int32_t>(t, g);
    }
    return absl::OkStatus();
  }

 private:
  template <typename Index>
  absl::Status Copy(const Tensors& t) const {
    const AroundAxis& data = shape_.data;
    const auto* const indices = static_cast<const Index*>(t.inputs[1]);
    const size_t bytes = data.inner * shape_.element_bytes;
    const char* x = static_cast<const char*>(t.inputs[0]);
    char* y = static_cast<char*>(t.outputs[0]);
    for (int64_t o = 0; o < data.outer; ++o, x += data.n * bytes) {
      for (int64_t i = 0; i < shape_.indices; ++i, y += bytes) {
        const int64_t at = indices[i] < 0 ? indices[i] + data.n : indices[i];
        if (at < 0 || at >= data.n) return OutOfRange(indices[i], i);
        std::memcpy(y, x + at * bytes, bytes);
      }
    }
    return absl::OkStatus();
  }

  // What repeats adds up to the same wherever the rows lie.
  template <typename Index>
  void Add(const Tensors& t, const Gradients& g) const {
    const AroundAxis& data = shape_.data;
    const auto* const indices = static_cast<const Index*>(t.inputs[1]);
    float* const dx = g.in(0);
    if (!g.accumulate(0)) {
      std::fill(dx, dx + data.outer * data.n * data.inner, 0.0f);
    }
    AddNamedRows(
        shape_.Rows(),
        [indices, n = data.n](int64_t i) -> int64_t {
          return indices[i] < 0 ? indices[i] + n : indices[i];
        },
        g.out(), dx, static_cast<uint32_t*>(t.scratch));
  }

  absl::Status OutOfRange(int64_t index, int64_t i) const {
    return absl::InvalidArgumentError(
        absl::StrCat("index ", index, ", number ", i, " of ", shape_.indices,
                     ", is outside a dimension of ", shape_.data.n));
  }

  const GatherShape shape_;
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
  GatherShape shape;
  shape.data = SplitAt(data.dims, axis);
  shape.indices = indices.count();
  shape.index_type = indices.dtype;
  shape.element_bytes = DTypeBytes(data.dtype);
  return std::make_unique<GatherOp>(shape);
}

}  // namespace syncline::worker
