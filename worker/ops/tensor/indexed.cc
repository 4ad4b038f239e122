#include "worker/ops/tensor/indexed.h"

#include "absl/strings/str_cat.h"
#include "kernels/elementwise/strided.h"

namespace syncline::worker {

absl::StatusOr<IndexedShape> ElementsAlong(const TensorType& data,
                                           const TensorType& indices,
                                           int64_t axis) {
  const Dims& dims = data.dims;
  const Dims& given = indices.dims;
  bool fits = given.size() == dims.size();
  for (size_t d = 0; fits && d < dims.size(); ++d) {
    fits = static_cast<int64_t>(d) == axis || given[d] <= dims[d];
  }
  if (!fits) {
    return absl::InvalidArgumentError(
        absl::StrCat("indices ", DimsToString(given), " do not lie within ",
                     DimsToString(dims)));
  }
  const Dims strides = DenseStrides(dims);
  IndexedShape shape;
  shape.runs = indices.count();
  shape.count = data.count();
  shape.index_type = indices.dtype;
  for (size_t d = 0; d < dims.size(); ++d) {
    const bool indexed = static_cast<int64_t>(d) == axis;
    shape.loops.push_back({given[d], indexed ? 0 : strides[d]});
    if (indexed) shape.places.push_back({dims[d], strides[d]});
  }
  return shape;
}

absl::StatusOr<IndexedShape> PartsByTuple(const TensorType& data,
                                          const TensorType& indices,
                                          int64_t batch_dims) {
  const Dims& dims = data.dims;
  const Dims& given = indices.dims;
  const int64_t width = given.empty() ? 0 : given.back();
  bool fits = batch_dims >= 0 && width > 0 &&
              batch_dims < static_cast<int64_t>(given.size()) &&
              batch_dims + width <= static_cast<int64_t>(dims.size());
  for (int64_t d = 0; fits && d < batch_dims; ++d) fits = dims[d] == given[d];
  if (!fits) {
    return absl::InvalidArgumentError(absl::StrCat(
        "data ", DimsToString(dims), ", indices ", DimsToString(given),
        " and batch_dims ", batch_dims, " do not fit"));
  }
  const absl::Span<const int64_t> all(dims);
  const Dims strides = DenseStrides(dims);
  const int64_t batches = ElementCount(all.first(batch_dims));
  IndexedShape shape;
  shape.runs = indices.count() / width;
  shape.run_length = ElementCount(all.subspan(batch_dims + width));
  shape.count = data.count();
  shape.index_type = indices.dtype;
  shape.loops.push_back({batches, ElementCount(all.subspan(batch_dims))});
  shape.loops.push_back({batches == 0 ? 0 : shape.runs / batches, 0});
  for (int64_t d = batch_dims; d < batch_dims + width; ++d) {
    shape.places.push_back({dims[d], strides[d]});
  }
  return shape;
}

absl::Status CheckIndexType(const TensorType& indices) {
  const DType dtype = indices.dtype;
  if (dtype == DType::kInt64 || dtype == DType::kInt32) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "indices are ", DTypeName(dtype), "; they must be int32 or int64"));
}

absl::Status ExplainIndex(const DataError& error) {
  return absl::InvalidArgumentError(absl::StrCat("index ", error.value,
                                                 ", number ", error.position,
                                                 ", is outside its dimension"));
}

}  // namespace syncline::worker
