#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/float_array.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/walk/window_walk.h"
#include "kernels/device/pooling_kernels.h"

namespace syncline {
namespace {

using cuda::Global;
using cuda::OnDevice;
using cuda::Plane;

// The first of the largest; NaN is larger than anything.
void MaxForward(Stream& stream, const PoolShape& s, ConstFloats x, Floats y,
                int32_t* indices) {
  const bool wants_indices = indices != nullptr;
  cuda::LaunchElements(
      stream, s.planes * s.window.out_count(),
      [wants_indices, plane = cuda::MakePlane(s.window), x = OnDevice(x),
       y = OnDevice(y),
       indices = OnDevice(indices)] SYNCLINE_DEVICE(int64_t o) {
        const int64_t out = plane.out_count();
        const int64_t begin = o / out * plane.in_count();
        float largest = -INFINITY;
        int at = -1;
        plane.ForEachElement(static_cast<int>(o % out), [&](int i) {
          const float v = x[begin + i];
          if (at >= 0 && !(v > largest) && v == v) return;
          largest = v;
          at = i;
        });
        y[o] = largest;
        if (wants_indices) indices[o] = at;
      });
}

void MaxBackward(Stream& stream, const PoolShape& s, const int32_t* indices,
                 ConstFloats dy, bool accumulate, Floats dx) {
  cuda::LaunchElements(stream, s.planes * s.window.in_count(),
                       [accumulate, plane = cuda::MakePlane(s.window),
                        indices = OnDevice(indices), dy = OnDevice(dy),
                        dx = OnDevice(dx)] SYNCLINE_DEVICE(int64_t at) {
                         const int64_t in = plane.in_count();
                         const int64_t begin = at / in * plane.out_count();
                         const int i = static_cast<int>(at % in);
                         float sum =
                             accumulate ? static_cast<float>(dx[at]) : 0.0f;
                         plane.ForEachWindow(i, [&](int o) {
                           if (indices[begin + o] == i) sum += dy[begin + o];
                         });
                         dx[at] = sum;
                       });
}

SYNCLINE_DEVICE int ColumnMajor(const Plane& plane, int i) {
  const int iw = i % plane.w.in;
  const int ih = i / plane.w.in % plane.h.in;
  const int id = i / plane.w.in / plane.h.in;
  return (iw * plane.h.in + ih) * plane.d.in + id;
}

void MaxPlaces(Stream& stream, const PoolShape& s, bool column_major,
               const int32_t* indices, int64_t* places) {
  cuda::LaunchElements(
      stream, s.planes * s.window.out_count(),
      [column_major, plane = cuda::MakePlane(s.window),
       indices = OnDevice(indices),
       places = OnDevice(places)] SYNCLINE_DEVICE(int64_t o) {
        const int64_t begin = o / plane.out_count() * plane.in_count();
        const int i = indices[o];
        places[o] = begin + (column_major ? ColumnMajor(plane, i) : i);
      });
}

void AverageForward(Stream& stream, const PoolShape& s, const float* weights,
                    ConstFloats x, Floats y) {
  cuda::LaunchElements(
      stream, s.planes * s.window.out_count(),
      [plane = cuda::MakePlane(s.window), weights = OnDevice(weights),
       x = OnDevice(x), y = OnDevice(y)] SYNCLINE_DEVICE(int64_t at) {
        const int64_t out = plane.out_count();
        const int64_t begin = at / out * plane.in_count();
        const int o = static_cast<int>(at % out);
        float sum = 0;
        plane.ForEachElement(o, [&](int i) { sum += x[begin + i]; });
        y[at] = sum * weights[o];
      });
}

void AverageBackward(Stream& stream, const PoolShape& s, const float* weights,
                     ConstFloats dy, bool accumulate, Floats dx) {
  cuda::LaunchElements(
      stream, s.planes * s.window.in_count(),
      [accumulate, plane = cuda::MakePlane(s.window),
       weights = OnDevice(weights), dy = OnDevice(dy),
       dx = OnDevice(dx)] SYNCLINE_DEVICE(int64_t at) {
        const int64_t in = plane.in_count();
        const int64_t begin = at / in * plane.out_count();
        float sum = accumulate ? static_cast<float>(dx[at]) : 0.0f;
        plane.ForEachWindow(static_cast<int>(at % in),
                            [&](int o) { sum += dy[begin + o] * weights[o]; });
        dx[at] = sum;
      });
}

}  // namespace

const PoolingKernels& CudaPoolingKernels() {
  static constexpr PoolingKernels kKernels = {
      .max_forward = MaxForward,
      .max_backward = MaxBackward,
      .max_places = MaxPlaces,
      .average_forward = AverageForward,
      .average_backward = AverageBackward};
  return kKernels;
}

}  // namespace syncline
