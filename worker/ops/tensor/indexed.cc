#include "worker/ops/tensor/indexed.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/elementwise/strided.h"
#include "kernels/named_rows.h"

namespace syncline::worker {

absl::StatusOr<IndexedShape> ElementsAlong(const Dims& data,
                                           const Dims& indices, int64_t axis) {
  bool fits = indices.size() == data.size();
  for (size_t d = 0; fits && d < data.size(); ++d) {
    fits = static_cast<int64_t>(d) == axis || indices[d] <= data[d];
  }
  if (!fits) {
    return absl::InvalidArgumentError(
        absl::StrCat("indices ", DimsToString(indices), " do not lie within ",
                     DimsToString(data)));
  }
  const Dims strides = DenseStrides(data);
  const int64_t n = data[axis];
  IndexedShape shape;
  shape.runs = ElementCount(indices);
  shape.begin = [=](const int64_t* given, int64_t i, int64_t* bad) {
    const int64_t index = given[i] < 0 ? given[i] + n : given[i];
    *bad = i;
    if (index < 0 || index >= n) return int64_t{-1};
    int64_t at = index * strides[axis];
    for (size_t d = indices.size(); d-- > 0; i /= indices[d]) {
      if (static_cast<int64_t>(d) != axis) at += i % indices[d] * strides[d];
    }
    return at;
  };
  return shape;
}

absl::StatusOr<IndexedShape> PartsByTuple(const Dims& data, const Dims& indices,
                                          int64_t batch_dims) {
  const int64_t width = indices.empty() ? 0 : indices.back();
  bool fits = batch_dims >= 0 && width > 0 &&
              batch_dims < static_cast<int64_t>(indices.size()) &&
              batch_dims + width <= static_cast<int64_t>(data.size());
  for (int64_t d = 0; fits && d < batch_dims; ++d) fits = data[d] == indices[d];
  if (!fits) {
    return absl::InvalidArgumentError(absl::StrCat(
        "data ", DimsToString(data), ", indices ", DimsToString(indices),
        " and batch_dims ", batch_dims, " do not fit"));
  }
  const absl::Span<const int64_t> all(data);
  const Dims strides = DenseStrides(data);
  const int64_t batches = ElementCount(all.first(batch_dims));
  const int64_t batch_size = ElementCount(all.subspan(batch_dims));
  IndexedShape shape;
  shape.runs = ElementCount(indices) / width;
  shape.run_length = ElementCount(all.subspan(batch_dims + width));
  const int64_t per_batch = batches == 0 ? 0 : shape.runs / batches;
  shape.begin = [=](const int64_t* index, int64_t i, int64_t* bad) {
    int64_t at = i / per_batch * batch_size;
    for (int64_t d = 0; d < width; ++d) {
      *bad = i * width + d;
      const int64_t n = data[batch_dims + d];
      const int64_t k = index[*bad] < 0 ? index[*bad] + n : index[*bad];
      if (k < 0 || k >= n) return int64_t{-1};
      at += k * strides[batch_dims + d];
    }
    return at;
  };
  return shape;
}

absl::Status RunPlaces::Check(const TensorType& indices) {
  const DType dtype = indices.dtype;
  if (dtype == DType::kInt64 || dtype == DType::kInt32) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "indices are ", DTypeName(dtype), "; they must be int32 or int64"));
}

RunPlaces::RunPlaces(const TensorType& indices, IndexedShape shape)
    : shape_(std::move(shape)),
      narrow_(indices.dtype == DType::kInt32),
      widened_(narrow_ ? indices.count() : 0) {}

absl::Status RunPlaces::Find(const void* indices, int64_t* begins) {
  const auto* wide = static_cast<const int64_t*>(indices);
  if (narrow_) {
    std::copy_n(static_cast<const int32_t*>(indices), widened_.size(),
                widened_.begin());
    wide = widened_.data();
  }
  for (int64_t i = 0; i < shape_.runs; ++i) {
    int64_t bad = 0;
    begins[i] = shape_.begin(wide, i, &bad);
    if (begins[i] < 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "index ", wide[bad], ", number ", bad, ", is outside its dimension"));
    }
  }
  return absl::OkStatus();
}

int64_t AddingScratchBytes(const IndexedShape& shape) {
  return static_cast<int64_t>(NamedRowsScratch({.named = shape.runs}) *
                              sizeof(uint32_t));
}

void RunPlaces::Add(const int64_t* begins, int64_t count, const float* from,
                    float* to, void* scratch) const {
  const int64_t n = shape_.run_length;
  if (n == 0) return;
  AddNamedRows(
      {.rows = count / n, .named = shape_.runs, .width = n},
      [=](int64_t i) { return begins[i] / n; }, from, to,
      static_cast<uint32_t*>(scratch));
}

}  // namespace syncline::worker
