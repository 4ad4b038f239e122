// Gather, GatherElements and GatherND.

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/named_rows.h"
#include "worker/ops/axes.h"
#include "worker/ops/op.h"
#include "worker/ops/tensor/indexed.h"

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

  // The sum of repeated rows has the same bits wherever the rows lie.
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
