#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/on_float32.h"
#include "kernels/device/softmax_kernels.h"
#include "kernels/threads.h"

namespace syncline {
namespace {

// Calls run(part, offset) for what each thread has of the lines.
template <typename Run>
void ForParts(const SoftmaxShape& s, Run run) {
  const int64_t row = s.n * s.inner;
  ParallelForRows(s.outer, row, [&](int64_t begin, int64_t end) {
    run(SoftmaxShape{end - begin, s.n, s.inner}, begin * row);
  });
}

template <void (*kForward)(const SoftmaxShape&, const float*, float*)>
void Forward(Stream& stream, const SoftmaxShape& s, const float* x, float* y) {
  const CpuKernel kernel(stream);
  ForParts(s, [=](const SoftmaxShape& part, int64_t at) {
    kForward(part, x + at, y + at);
  });
}

template <void (*kBackward)(const SoftmaxShape&, const float*, const float*,
                            bool, float*)>
void Backward(Stream& stream, const SoftmaxShape& s, const float* y,
              const float* dy, bool accumulate, float* dx) {
  const CpuKernel kernel(stream);
  ForParts(s, [=](const SoftmaxShape& part, int64_t at) {
    kBackward(part, y + at, dy + at, accumulate, dx + at);
  });
}

}  // namespace

const SoftmaxKernels& CpuSoftmaxKernels() {
  static constexpr SoftmaxKernels kKernels = {
      .softmax = {OnFloat32<Forward<Softmax>>,
                  OnFloat32<Backward<SoftmaxGradient>>},
      .log_softmax = {OnFloat32<Forward<LogSoftmax>>,
                      OnFloat32<Backward<LogSoftmaxGradient>>}};
  return kKernels;
}

}  // namespace syncline
