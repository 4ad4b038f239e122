#include <algorithm>
#include <cstring>

#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/on_float32.h"
#include "kernels/cpu/report.h"
#include "kernels/device/gather_kernels.h"
#include "kernels/named_rows.h"

namespace syncline {
namespace {

NamedRows RowsOf(const GatherShape& s) {
  return {s.outer, s.n, s.indices, s.inner};
}

int64_t Counted(int64_t index, int64_t n) {
  return index < 0 ? index + n : index;
}
bool IsIn(int64_t row, int64_t n) {
  return static_cast<uint64_t>(row) < static_cast<uint64_t>(n);
}

template <typename Index>
void CopyRows(const GatherShape& s, const void* data, const Index* indices,
              void* result, const ErrorSlot& errors) {
  const size_t bytes = s.inner * s.element_bytes;
  const char* x = static_cast<const char*>(data);
  char* y = static_cast<char*>(result);
  for (int64_t o = 0; o < s.outer; ++o, x += s.n * bytes) {
    for (int64_t i = 0; i < s.indices; ++i, y += bytes) {
      int64_t row = Counted(indices[i], s.n);
      if (!IsIn(row, s.n)) {
        Report(errors, /*kind=*/0, i, indices[i]);
        row = 0;
      }
      std::memcpy(y, x + row * bytes, bytes);
    }
  }
}

// The gather from an axis of length 0: every index is out of range.
template <typename Index>
void CopyNone(const GatherShape& s, const Index* indices, void* y,
              const ErrorSlot& errors) {
  const int64_t elements = s.outer * s.indices * s.inner;
  std::memset(y, 0, elements * s.element_bytes);
  if (s.outer > 0 && s.indices > 0) Report(errors, 0, 0, indices[0]);
}

template <typename Index>
void Run(const GatherShape& s, const void* x, const Index* indices, void* y,
         const ErrorSlot& errors) {
  if (s.n > 0) {
    CopyRows(s, x, indices, y, errors);
  } else {
    CopyNone(s, indices, y, errors);
  }
}

void Forward(Stream& stream, const GatherShape& s, const void* x,
             const void* indices, void* y, const ErrorSlot& errors) {
  const CpuKernel kernel(stream);
  if (s.index_type == DType::kInt64) {
    Run(s, x, static_cast<const int64_t*>(indices), y, errors);
  } else {
    Run(s, x, static_cast<const int32_t*>(indices), y, errors);
  }
}

template <typename Index>
void AddRows(const GatherShape& s, const Index* indices, const float* dy,
             float* dx, void* scratch) {
  AddNamedRows(
      RowsOf(s),
      [indices, n = s.n](int64_t i) {
        const int64_t row = Counted(indices[i], n);
        return IsIn(row, n) ? row : 0;
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
      .backward = OnFloat32<Backward>,
      .backward_scratch_bytes = BackwardScratchBytes};
  return kKernels;
}

}  // namespace syncline
