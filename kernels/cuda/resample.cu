#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/launch.h"
#include "kernels/device/resample_kernels.h"

namespace syncline {
namespace {

using cuda::OnDevice;

void Forward(Stream& stream, const ResampleShape& s,
             const ResampleTables& tables, const float* x, float* y) {
  cuda::LaunchElements(
      stream, s.outer * s.out * s.inner,
      [s, places = OnDevice(tables.places), weights = OnDevice(tables.weights),
       x = OnDevice(x), y = OnDevice(y)] SYNCLINE_DEVICE(int64_t i) {
        const int64_t column = i % s.inner;
        const int64_t o = i / s.inner % s.out;
        const int64_t line = i / s.inner / s.out;
        float sum = 0;
        for (int64_t t = o * s.taps; t < (o + 1) * s.taps; ++t) {
          const int64_t from = (line * s.in + places[t]) * s.inner + column;
          sum += Weighted(weights[t], x[from]);
        }
        y[i] = sum;
      });
}

// A thread goes along a line alone, in the order of the result, so that what is
// added to one place is added in order.
void Backward(Stream& stream, const ResampleShape& s,
              const ResampleTables& tables, const float* dy, bool accumulate,
              float* dx) {
  cuda::LaunchElements(
      stream, s.outer * s.inner,
      [s, accumulate, places = OnDevice(tables.places),
       weights = OnDevice(tables.weights), dy = OnDevice(dy),
       dx = OnDevice(dx)] SYNCLINE_DEVICE(int64_t i) {
        const int64_t column = i % s.inner;
        const int64_t line = i / s.inner;
        const int64_t begin = line * s.in * s.inner + column;
        for (int64_t k = 0; !accumulate && k < s.in; ++k) {
          dx[begin + k * s.inner] = 0;
        }
        for (int64_t o = 0; o < s.out; ++o) {
          const float d = dy[(line * s.out + o) * s.inner + column];
          for (int64_t t = o * s.taps; t < (o + 1) * s.taps; ++t) {
            dx[begin + places[t] * s.inner] += Weighted(weights[t], d);
          }
        }
      });
}

}  // namespace

const ResampleKernels& CudaResampleKernels() {
  static constexpr ResampleKernels kKernels = {.forward = Forward,
                                               .backward = Backward};
  return kKernels;
}

}  // namespace syncline
