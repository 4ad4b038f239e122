#include "kernels/cpu/strided_copy.h"

#include <algorithm>
#include <cstdint>

#include "common/base/check.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/on_float32.h"
#include "kernels/device/strided_copy_kernels.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/elementwise/loop.h"
#include "kernels/threads.h"

namespace syncline {
namespace {

// walk.ForEachRow(row), by several threads. REQUIRES: no two rows write to one
// place.
template <typename Row>
void ForEachRowShared(const Strided<1>& walk, Row row) {
  const int64_t parts = walk.outermost();
  ParallelForRows(
      parts, parts == 0 ? 0 : walk.count() / parts,
      [&](int64_t begin, int64_t end) { walk.ForEachRowIn(begin, end, row); });
}

template <typename T>
void CopyOf(const Strided<1>& walk, const void* from, void* to) {
  const T* const x = static_cast<const T*>(from);
  T* const y = static_cast<T*>(to);
  const int64_t n = walk.inner();
  const int64_t stride = walk.inner_strides()[0];
  ForEachRowShared(walk, [=](int64_t at, const auto& offsets) {
    const T* const in = x + offsets[0];
    if (stride == 1) {
      std::copy_n(in, n, y + at);
    } else if (stride == 0) {
      std::fill_n(y + at, n, *in);
    } else {
      for (int64_t i = 0; i < n; ++i) y[at + i] = in[i * stride];
    }
  });
}

void Copy(Stream& stream, const Strided<1>& walk, size_t element_bytes,
          const void* x, void* y) {
  const CpuKernel kernel(stream);
  CopyStrided(walk, element_bytes, x, y);
}

void Scatter(Stream& stream, const Strided<1>& walk, const float* dy,
             float* dx) {
  const CpuKernel kernel(stream);
  const int64_t n = walk.inner();
  const int64_t stride = walk.inner_strides()[0];
  ForEachRowShared(walk, [=](int64_t at, const auto& offsets) {
    float* const out = dx + offsets[0];
    if (stride == 1) {
      std::copy_n(dy + at, n, out);
    } else {
      for (int64_t i = 0; i < n; ++i) out[i * stride] = dy[at + i];
    }
  });
}

void AddStrided(Stream& stream, const Strided<1>& walk, const float* dy,
                float* dx) {
  const CpuKernel kernel(stream);
  const int64_t n = walk.inner();
  const int64_t stride = walk.inner_strides()[0];
  walk.ForEachRow([=](int64_t at, const auto& offsets) {
    const float* const in = dy + at;
    float* const out = dx + offsets[0];
    if (stride == 0) {
      *out += SumOf(n, [=](int64_t i) { return in[i]; });
    } else if (stride == 1) {
      Emit(n, /*accumulate=*/true, out, [=](int64_t i) { return in[i]; });
    } else {
      for (int64_t i = 0; i < n; ++i) out[i * stride] += in[i];
    }
  });
}

void AddRepeated(Stream& stream, const Broadcast& repeats, const float* dy,
                 bool accumulate, float* dx) {
  const CpuKernel kernel(stream);
  AddGradient(repeats, Side::kB, /*scale=*/1, dy, accumulate, dx);
}

}  // namespace

void CopyStrided(const Strided<1>& walk, size_t element_bytes, const void* x,
                 void* y) {
  switch (element_bytes) {
    case 1:
      return CopyOf<uint8_t>(walk, x, y);
    case 2:
      return CopyOf<uint16_t>(walk, x, y);
    case 4:
      return CopyOf<uint32_t>(walk, x, y);
    default:
      SYNCLINE_CHECK(element_bytes == 8);
      return CopyOf<uint64_t>(walk, x, y);
  }
}

const StridedCopyKernels& CpuStridedCopyKernels() {
  static constexpr StridedCopyKernels kKernels = {
      .copy = Copy,
      .scatter = OnFloat32<Scatter>,
      .add = OnFloat32<AddStrided>,
      .add_repeated = OnFloat32<AddRepeated>};
  return kKernels;
}

}  // namespace syncline
