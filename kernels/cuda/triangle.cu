#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/element_bytes.h"
#include "kernels/cuda/launch.h"
#include "kernels/device/triangle_kernels.h"

namespace syncline {
namespace {

using cuda::Global;
using cuda::OnDevice;

SYNCLINE_DEVICE bool IsKept(const TriangleShape& s, int64_t i) {
  return s.Keeps(i / s.columns % s.rows, i % s.columns);
}

int64_t CountOf(const TriangleShape& s) {
  return s.matrices * s.rows * s.columns;
}

template <typename T>
struct KeepElement {
  TriangleShape s;
  Global<const T> x;
  Global<T> y;

  SYNCLINE_DEVICE void operator()(int64_t i) const {
    y[i] = IsKept(s, i) ? static_cast<T>(x[i]) : T(0);
  }
};

void Forward(Stream& stream, const TriangleShape& s, size_t element_bytes,
             const void* x, void* y) {
  cuda::WithElementBytes(element_bytes, [&](auto element) {
    using T = decltype(element);
    cuda::LaunchElements(stream, CountOf(s),
                         KeepElement<T>{s, OnDevice(static_cast<const T*>(x)),
                                        OnDevice(static_cast<T*>(y))});
  });
}

void Backward(Stream& stream, const TriangleShape& s, ConstFloats dy,
              bool accumulate, Floats dx) {
  cuda::LaunchElements(stream, CountOf(s),
                       [s, accumulate, dy = OnDevice(dy),
                        dx = OnDevice(dx)] SYNCLINE_DEVICE(int64_t i) {
                         const float d =
                             IsKept(s, i) ? static_cast<float>(dy[i]) : 0.0f;
                         dx[i] = accumulate ? dx[i] + d : d;
                       });
}

}  // namespace

const TriangleKernels& CudaTriangleKernels() {
  static constexpr TriangleKernels kKernels = {.forward = Forward,
                                               .backward = Backward};
  return kKernels;
}

}  // namespace syncline
