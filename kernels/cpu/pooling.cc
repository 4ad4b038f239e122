#include "kernels/pooling.h"

#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/device/pooling_kernels.h"
#include "kernels/threads.h"

namespace syncline {
namespace {

void MaxForward(Stream& stream, const PoolShape& s, ConstFloats x, Floats y,
                int32_t* indices) {
  const CpuKernel kernel(stream);
  const int64_t in = s.window.in_count();
  const int64_t out = s.window.out_count();
  ParallelForRows(s.planes, in, [&](int64_t begin, int64_t end) {
    MaxPool(end - begin, s.window, x + begin * in, y + begin * out,
            indices == nullptr ? nullptr : indices + begin * out);
  });
}

void MaxBackward(Stream& stream, const PoolShape& s, const int32_t* indices,
                 ConstFloats dy, bool accumulate, Floats dx) {
  const CpuKernel kernel(stream);
  const int64_t in = s.window.in_count();
  const int64_t out = s.window.out_count();
  ParallelForRows(s.planes, in, [&](int64_t begin, int64_t end) {
    MaxPoolGradient(end - begin, s.window, indices + begin * out,
                    dy + begin * out, accumulate, dx + begin * in);
  });
}

int64_t ColumnMajor(const Window& window, int64_t index) {
  int64_t flat = 0;
  int64_t stride = window.in_count();
  for (size_t a = window.axes.size(); a-- > 0;) {
    const int64_t n = window.axes[a].in;
    stride /= n;
    flat += index % n * stride;
    index /= n;
  }
  return flat;
}

void MaxPlaces(Stream& stream, const PoolShape& s, bool column_major,
               const int32_t* indices, int64_t* places) {
  const CpuKernel kernel(stream);
  const int64_t in = s.window.in_count();
  const int64_t out = s.window.out_count();
  for (int64_t i = 0; i < s.planes * out; ++i) {
    places[i] = i / out * in +
                (column_major ? ColumnMajor(s.window, indices[i]) : indices[i]);
  }
}

void AverageForward(Stream& stream, const PoolShape& s, const float* weights,
                    ConstFloats x, Floats y) {
  const CpuKernel kernel(stream);
  AveragePool(s.planes, s.window, weights, x, y);
}

void AverageBackward(Stream& stream, const PoolShape& s, const float* weights,
                     ConstFloats dy, bool accumulate, Floats dx) {
  const CpuKernel kernel(stream);
  AveragePoolGradient(s.planes, s.window, weights, dy, accumulate, dx);
}

}  // namespace

const PoolingKernels& CpuPoolingKernels() {
  static constexpr PoolingKernels kKernels = {
      .max_forward = MaxForward,
      .max_backward = MaxBackward,
      .max_places = MaxPlaces,
      .average_forward = AverageForward,
      .average_backward = AverageBackward};
  return kKernels;
}

}  // namespace syncline
