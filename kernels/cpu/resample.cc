#include "kernels/resample.h"

#include <algorithm>

#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/device/resample_kernels.h"
#include "kernels/threads.h"

namespace syncline {
namespace {

// Calls run(part, first line) for what each thread has of the lines.
template <typename Run>
void ForLines(const ResampleShape& s, Run run) {
  const int64_t line = std::max(s.in, s.out) * s.inner;
  ParallelForRows(s.outer, line, [&](int64_t begin, int64_t end) {
    ResampleShape part = s;
    part.outer = end - begin;
    run(part, begin);
  });
}

void Forward(Stream& stream, const ResampleShape& s,
             const ResampleTables& tables, const float* x, float* y) {
  const CpuKernel kernel(stream);
  ForLines(s, [&](const ResampleShape& part, int64_t line) {
    Resample(part, tables, x + line * s.in * s.inner,
             y + line * s.out * s.inner);
  });
}

void Backward(Stream& stream, const ResampleShape& s,
              const ResampleTables& tables, const float* dy, bool accumulate,
              float* dx) {
  const CpuKernel kernel(stream);
  ForLines(s, [&](const ResampleShape& part, int64_t line) {
    ResampleGradient(part, tables, dy + line * s.out * s.inner, accumulate,
                     dx + line * s.in * s.inner);
  });
}

}  // namespace

const ResampleKernels& CpuResampleKernels() {
  static constexpr ResampleKernels kKernels = {.forward = Forward,
                                               .backward = Backward};
  return kKernels;
}

}  // namespace syncline
