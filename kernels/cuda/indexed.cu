#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/element_bytes.h"
#include "kernels/cuda/report.h"
#include "kernels/cuda/walk/named_rows.h"
#include "kernels/device/indexed_kernels.h"

namespace syncline {
namespace {

using cuda::Global;
using cuda::OnDevice;

template <typename Index>
struct FindRun {
  IndexedShape s;
  Global<const Index> indices;
  Global<int64_t> begins;
  cuda::Reporter errors;

  SYNCLINE_DEVICE void operator()(int64_t run) const {
    int64_t begin = 0;
    int64_t left = run;
    for (size_t d = s.loops.size(); d-- > 0;) {
      begin += left % s.loops[d].n * s.loops[d].stride;
      left /= s.loops[d].n;
    }
    const int64_t width = static_cast<int64_t>(s.places.size());
    for (int64_t d = 0; d < width; ++d) {
      const IndexedShape::Dimension& place = s.places[d];
      const int64_t at = run * width + d;
      const int64_t index = static_cast<Index>(indices[at]);
      const int64_t position = index < 0 ? index + place.n : index;
      if (position >= 0 && position < place.n) {
        begin += position * place.stride;
      } else {
        errors.Report(/*kind=*/0, at, index);
      }
    }
    begins[run] = begin;
  }
};

template <typename Index>
void FindOf(Stream& stream, const IndexedShape& s, const void* indices,
            int64_t* begins, const ErrorSlot& errors) {
  cuda::LaunchElements(
      stream, s.runs,
      FindRun<Index>{s, OnDevice(static_cast<const Index*>(indices)),
                     OnDevice(begins), cuda::OnDevice(errors)});
}

void Find(Stream& stream, const IndexedShape& s, const void* indices,
          int64_t* begins, const ErrorSlot& errors) {
  if (s.index_type == DType::kInt64) {
    FindOf<int64_t>(stream, s, indices, begins, errors);
  } else {
    FindOf<int32_t>(stream, s, indices, begins, errors);
  }
}

template <typename T>
struct CopyElement {
  int64_t run_length;
  bool is_empty;
  Global<const int64_t> begins;
  Global<const T> x;
  Global<T> y;

  SYNCLINE_DEVICE void operator()(int64_t i) const {
    T value{0};
    if (!is_empty) value = x[begins[i / run_length] + i % run_length];
    y[i] = value;
  }
};

void Gather(Stream& stream, const IndexedShape& s, size_t element_bytes,
            const int64_t* begins, const void* x, void* y) {
  cuda::WithElementBytes(element_bytes, [&](auto element) {
    using T = decltype(element);
    cuda::LaunchElements(
        stream, s.runs * s.run_length,
        CopyElement<T>{s.run_length, s.count == 0, OnDevice(begins),
                       OnDevice(static_cast<const T*>(x)),
                       OnDevice(static_cast<T*>(y))});
  });
}

// REQUIRES: run_length > 0.
cuda::NamedRowsShape RowsOf(const IndexedShape& s) {
  return {
      .rows = s.count / s.run_length, .named = s.runs, .width = s.run_length};
}

void Add(Stream& stream, const IndexedShape& s, const int64_t* begins,
         ConstFloats from, Floats to, void* scratch) {
  if (s.count == 0 || s.run_length == 0) return;
  cuda::AddNamedRows(stream, RowsOf(s),
                     cuda::RowOfRun{s.run_length, OnDevice(begins)}, from, to,
                     scratch);
}

int64_t AddScratchBytes(const IndexedShape& s) {
  return s.run_length == 0 ? 0 : cuda::NamedRowsScratchBytes(RowsOf(s));
}

}  // namespace

const IndexedKernels& CudaIndexedKernels() {
  static constexpr IndexedKernels kKernels = {
      .find = Find,
      .gather = Gather,
      .add = Add,
      .add_scratch_bytes = AddScratchBytes};
  return kKernels;
}

}  // namespace syncline
