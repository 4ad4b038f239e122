#include <algorithm>
#include <cstring>

#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/report.h"
#include "kernels/device/gather_kernels.h"
#include "kernels/named_rows.h"

namespace syncline {
namespace {

NamedRows RowsOf(const GatherShape& s) {
  return {s.outer, s.n, s.indices, s.inner};
}

// -1: out of range.
int64_t RowOf(int64_t index, int64_t n) {
  const int64_t row = index < 0 ? index + n : index;
  return row >= 0 && row < n ? row : -1;
}

template <typename Index>
void CopyRows(const GatherShape& s, const void* data, const Index* indices,
              void* result, const ErrorSlot& errors) {
  const size_t bytes = s.inner * s.element_bytes;
  const char* x = static_cast<const char*>(data);
  char* y = static_cast<char*>(result);
  for (int64_t o = 0; o < s.outer; ++o, x += s.n * bytes) {
    for (int64_t i = 0; i < s.indices; ++i, y += bytes) {
      int64_t row = RowOf(indices[i], s.n);
      if (row < 0) {
        Report(errors, /*kind=*/0, i, indices[i]);
        row = 0;
      }
      if (s.n > 0) {
        std::memcpy(y, x + row * bytes, bytes);
      } else {
        std::memset(y, 0, bytes);
      }
    }
  }
}

void Forward(Stream& stream, const GatherShape& s, const void* x,
             const void* indices, void* y, const ErrorSlot& errors) {
  const CpuKernel kernel(stream);
  if (s.index_type == DType::kInt64) {
    CopyRows(s, x, static_cast<const int64_t*>(indices), y, errors);
  } else {
    CopyRows(s, x, static_cast<const int32_t*>(indices), y, errors);
  }
}

template <typename Index>
void AddRows(const GatherShape& s, const Index* indices, const float* dy,
             float* dx, void* scratch) {
  AddNamedRows(
      RowsOf(s),
      [indices, n = s.n](int64_t i) {
        return std::max<int64_t>(RowOf(indices[i], n), 0);
      },
      dy, dx, static_cast<uint32_t*>(scratch));
}

void Backward(Stream& stream, const GatherShape& s, const void* indices,
              const float* dy, bool accumulate, float* dx, void* scratch) {
  const CpuKernel kernel(stream);
  if (s.n == 0) return;
  if (!accumulate) std::fill_n(dx, s.outer * s.n * s.inner, 0.0f);
  if (s.index_type == DType::kInt64) {
    AddRows(s, static_cast<const int64_t*>(indices), dy, dx, scratch);
  } else {
    AddRows(s, static_cast<const int32_t*>(indices), dy, dx, scratch);
  }
}

int64_t BackwardScratchBytes(const GatherShape& s) {
  return NamedRowsScratch(RowsOf(s)) * static_cast<int64_t>(sizeof(uint32_t));
}

}  // namespace

const GatherKernels& CpuGatherKernels() {
  static constexpr GatherKernels kKernels = {
      .forward = Forward,
      .backward = Backward,
      .backward_scratch_bytes = BackwardScratchBytes};
  return kKernels;
}

}  // namespace syncline
