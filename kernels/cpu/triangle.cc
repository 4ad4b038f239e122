#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/on_float32.h"
#include "kernels/device/triangle_kernels.h"

namespace syncline {
namespace {

template <typename Visit>
void ForEachElement(const TriangleShape& s, Visit visit) {
  int64_t at = 0;
  for (int64_t m = 0; m < s.matrices; ++m) {
    for (int64_t r = 0; r < s.rows; ++r, at += s.columns) {
      for (int64_t c = 0; c < s.columns; ++c) visit(at + c, s.Keeps(r, c));
    }
  }
}

template <typename T>
void Keep(const TriangleShape& s, const void* from, void* to) {
  const T* const x = static_cast<const T*>(from);
  T* const y = static_cast<T*>(to);
  ForEachElement(s, [=](int64_t i, bool kept) { y[i] = kept ? x[i] : T(0); });
}

void Forward(Stream& stream, const TriangleShape& s, size_t element_bytes,
             const void* x, void* y) {
  const CpuKernel kernel(stream);
  switch (element_bytes) {
    case 1:
      return Keep<uint8_t>(s, x, y);
    case 2:
      return Keep<uint16_t>(s, x, y);
    case 4:
      return Keep<uint32_t>(s, x, y);
    default:
      return Keep<uint64_t>(s, x, y);
  }
}

void Backward(Stream& stream, const TriangleShape& s, const float* dy,
              bool accumulate, float* dx) {
  const CpuKernel kernel(stream);
  ForEachElement(s, [=](int64_t i, bool kept) {
    const float d = kept ? dy[i] : 0.0f;
    dx[i] = accumulate ? dx[i] + d : d;
  });
}

}  // namespace

const TriangleKernels& CpuTriangleKernels() {
  static constexpr TriangleKernels kKernels = {.forward = Forward,
                                               .backward = OnFloat32<Backward>};
  return kKernels;
}

}  // namespace syncline
