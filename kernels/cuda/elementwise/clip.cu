#include <cmath>

#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/launch.h"
#include "kernels/device/clip_kernels.h"

namespace syncline {
namespace {

using cuda::ConstFloatArray;
using cuda::OnDevice;

struct Bounds {
  bool has_low;
  bool has_high;
  ConstFloatArray low_bound;
  ConstFloatArray high_bound;

  SYNCLINE_DEVICE float low() const {
    return has_low ? static_cast<float>(low_bound[0]) : -INFINITY;
  }
  SYNCLINE_DEVICE float high() const {
    return has_high ? static_cast<float>(high_bound[0]) : INFINITY;
  }
};

Bounds BoundsOf(ConstFloats low, ConstFloats high) {
  return {low != nullptr, high != nullptr, OnDevice(low), OnDevice(high)};
}

void Forward(Stream& stream, int64_t n, ConstFloats x, ConstFloats low,
             ConstFloats high, Floats y) {
  cuda::LaunchElements(stream, n,
                       [bounds = BoundsOf(low, high), x = OnDevice(x),
                        y = OnDevice(y)] SYNCLINE_DEVICE(int64_t i) {
                         const float value = x[i];
                         const float raised =
                             value < bounds.low() ? bounds.low() : value;
                         y[i] = raised > bounds.high() ? bounds.high() : raised;
                       });
}

void Backward(Stream& stream, int64_t n, ConstFloats x, ConstFloats low,
              ConstFloats high, ConstFloats dy, bool accumulate, Floats dx) {
  cuda::LaunchElements(
      stream, n,
      [accumulate, bounds = BoundsOf(low, high), x = OnDevice(x),
       dy = OnDevice(dy), dx = OnDevice(dx)] SYNCLINE_DEVICE(int64_t i) {
        const float value = x[i];
        const bool is_outside = value < bounds.low() || value > bounds.high();
        const float d = is_outside ? 0.0f : static_cast<float>(dy[i]);
        dx[i] = accumulate ? dx[i] + d : d;
      });
}

}  // namespace

const ClipKernels& CudaClipKernels() {
  static constexpr ClipKernels kKernels = {.forward = Forward,
                                           .backward = Backward};
  return kKernels;
}

}  // namespace syncline
