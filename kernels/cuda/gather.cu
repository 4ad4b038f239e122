#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/element_bytes.h"
#include "kernels/cuda/report.h"
#include "kernels/cuda/walk/named_rows.h"
#include "kernels/device/gather_kernels.h"

namespace syncline {
namespace {

using cuda::Global;
using cuda::OnDevice;

// The row that an index names; `n` has to be above it. An index that is out of
// range counts as 0.
template <typename Index>
struct RowOfIndex {
  int64_t n;
  Global<const Index> indices;

  SYNCLINE_DEVICE int64_t Named(int64_t i) const {
    const int64_t index = indices[i];
    return index < 0 ? index + n : index;
  }
  SYNCLINE_DEVICE bool IsIn(int64_t row) const { return row >= 0 && row < n; }
  SYNCLINE_DEVICE int64_t operator()(int64_t i) const {
    const int64_t row = Named(i);
    return IsIn(row) ? row : 0;
  }
};

template <typename Index>
struct CheckIndex {
  RowOfIndex<Index> row_of;
  cuda::Reporter errors;

  SYNCLINE_DEVICE void operator()(int64_t i) const {
    if (row_of.IsIn(row_of.Named(i))) return;
    const Index index = row_of.indices[i];
    errors.Report(/*kind=*/0, i, index);
  }
};

template <typename Index, typename T>
struct CopyElement {
  GatherShape s;
  RowOfIndex<Index> row_of;
  Global<const T> x;
  Global<T> y;
  cuda::Reporter errors;

  SYNCLINE_DEVICE void operator()(int64_t element) const {
    const int64_t column = element % s.inner;
    const int64_t i = element / s.inner % s.indices;
    const int64_t o = element / s.inner / s.indices;
    if (column == 0 && o == 0) CheckIndex<Index>{row_of, errors}(i);
    T value{0};
    if (s.n > 0) value = x[(o * s.n + row_of(i)) * s.inner + column];
    y[element] = value;
  }
};

template <typename Index>
void ForwardOf(Stream& stream, const GatherShape& s, const void* x,
               const void* indices, void* y, const ErrorSlot& errors) {
  const RowOfIndex<Index> row_of = {
      s.n, OnDevice(static_cast<const Index*>(indices))};
  // Rows without elements have no thread that copies.
  if (s.inner == 0 && s.outer > 0) {
    cuda::LaunchElements(stream, s.indices,
                         CheckIndex<Index>{row_of, cuda::OnDevice(errors)});
  }
  cuda::WithElementBytes(s.element_bytes, [&](auto element) {
    using T = decltype(element);
    cuda::LaunchElements(
        stream, s.outer * s.indices * s.inner,
        CopyElement<Index, T>{s, row_of, OnDevice(static_cast<const T*>(x)),
                              OnDevice(static_cast<T*>(y)),
                              cuda::OnDevice(errors)});
  });
}

void Forward(Stream& stream, const GatherShape& s, const void* x,
             const void* indices, void* y, const ErrorSlot& errors) {
  if (s.index_type == DType::kInt64) {
    ForwardOf<int64_t>(stream, s, x, indices, y, errors);
  } else {
    ForwardOf<int32_t>(stream, s, x, indices, y, errors);
  }
}

cuda::NamedRowsShape RowsOf(const GatherShape& s) {
  return {.outer = s.outer, .rows = s.n, .named = s.indices, .width = s.inner};
}

template <typename Index>
void AddRows(Stream& stream, const GatherShape& s, const void* indices,
             ConstFloats dy, Floats dx, void* scratch) {
  cuda::AddNamedRows(
      stream, RowsOf(s),
      RowOfIndex<Index>{s.n, OnDevice(static_cast<const Index*>(indices))}, dy,
      dx, scratch);
}

void Backward(Stream& stream, const GatherShape& s, const void* indices,
              ConstFloats dy, bool accumulate, Floats dx, void* scratch) {
  if (!accumulate) {
    cuda::LaunchElements(
        stream, s.outer * s.n * s.inner,
        [dx = OnDevice(dx)] SYNCLINE_DEVICE(int64_t i) { dx[i] = 0; });
  }
  if (s.n == 0) return;
  if (s.index_type == DType::kInt64) {
    AddRows<int64_t>(stream, s, indices, dy, dx, scratch);
  } else {
    AddRows<int32_t>(stream, s, indices, dy, dx, scratch);
  }
}

int64_t BackwardScratchBytes(const GatherShape& s) {
  return cuda::NamedRowsScratchBytes(RowsOf(s));
}

}  // namespace

const GatherKernels& CudaGatherKernels() {
  static constexpr GatherKernels kKernels = {
      .forward = Forward,
      .backward = Backward,
      .backward_scratch_bytes = BackwardScratchBytes};
  return kKernels;
}

}  // namespace syncline
