#include <algorithm>
#include <cstring>

#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/on_float32.h"
#include "kernels/device/block_copy_kernels.h"
#include "kernels/elementwise/loop.h"
#include "kernels/threads.h"

namespace syncline {
namespace {

// Calls run(row) for each row, by several threads.
template <typename Run>
void ForRows(const BlockRows& s, Run run) {
  if (s.width == 0) return;
  ParallelForRows(s.rows, s.width, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) run(row);
  });
}

void Copy(Stream& stream, const BlockRows& s, size_t element_bytes,
          const void* from, void* to) {
  const CpuKernel kernel(stream);
  const char* const x = static_cast<const char*>(from);
  char* const y = static_cast<char*>(to);
  const size_t bytes = s.width * element_bytes;
  ForRows(s, [=](int64_t row) {
    std::memcpy(y + row * s.to_row * element_bytes,
                x + row * s.from_row * element_bytes, bytes);
  });
}

void Gradient(Stream& stream, const BlockRows& s, const float* from,
              bool accumulate, float* to) {
  const CpuKernel kernel(stream);
  ForRows(s, [=](int64_t row) {
    const float* const x = from + row * s.from_row;
    Emit(s.width, accumulate, to + row * s.to_row,
         [=](int64_t i) { return x[i]; });
  });
}

void Clear(Stream& stream, const BlockRows& s, float* to) {
  const CpuKernel kernel(stream);
  ForRows(
      s, [=](int64_t row) { std::fill_n(to + row * s.to_row, s.width, 0.0f); });
}

}  // namespace

const BlockCopyKernels& CpuBlockCopyKernels() {
  static constexpr BlockCopyKernels kKernels = {
      .copy = Copy, .gradient = OnFloat32<Gradient>, .clear = OnFloat32<Clear>};
  return kKernels;
}

}  // namespace syncline
