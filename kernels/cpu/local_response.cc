#include "kernels/local_response.h"

#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/device/local_response_kernels.h"
#include "kernels/threads.h"

namespace syncline {
namespace {

// Calls run(part, offset) for the samples that each thread has.
template <typename Run>
void ForSamples(const LocalResponse& s, Run run) {
  const int64_t sample = s.channels * s.plane;
  ParallelForRows(s.batch, sample, [&](int64_t begin, int64_t end) {
    LocalResponse part = s;
    part.batch = end - begin;
    run(part, begin * sample);
  });
}

void Forward(Stream& stream, const LocalResponse& s, const float* x,
             float* scale, float* y) {
  const CpuKernel kernel(stream);
  ForSamples(s, [&](const LocalResponse& part, int64_t at) {
    NormalizeResponse(part, x + at, scale + at, y + at);
  });
}

void Backward(Stream& stream, const LocalResponse& s, const float* x,
              const float* scale, const float* dy, bool accumulate,
              float* ratio, float* dx) {
  const CpuKernel kernel(stream);
  ForSamples(s, [&](const LocalResponse& part, int64_t at) {
    NormalizeResponseGradient(part, x + at, scale + at, dy + at, accumulate,
                              ratio + at, dx + at);
  });
}

}  // namespace

const LocalResponseKernels& CpuLocalResponseKernels() {
  static constexpr LocalResponseKernels kKernels = {.forward = Forward,
                                                    .backward = Backward};
  return kKernels;
}

}  // namespace syncline
