#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/on_float32.h"
#include "kernels/cpu/report.h"
#include "kernels/device/rotary_kernels.h"

namespace syncline {
namespace {

// How the heads at one place are turned.
struct Angles {
  const float* cosines;
  const float* sines;
  int64_t pairs;
  bool back;
};

void TurnHead(const RotaryShape& s, const Angles& angles, const float* x,
              bool accumulate, float* y) {
  for (int64_t p = 0; p < angles.pairs; ++p) {
    const int64_t i = s.interleaved ? 2 * p : p;
    const int64_t j = s.interleaved ? 2 * p + 1 : p + angles.pairs;
    const float cosine = angles.cosines[p];
    const float sine = angles.back ? -angles.sines[p] : angles.sines[p];
    const float first = cosine * x[i] - sine * x[j];
    const float second = sine * x[i] + cosine * x[j];
    y[i] = accumulate ? y[i] + first : first;
    y[j] = accumulate ? y[j] + second : second;
  }
  for (int64_t i = 2 * angles.pairs; i < s.width; ++i) {
    y[i] = accumulate ? y[i] + x[i] : x[i];
  }
}

void Turn(Stream& stream, const RotaryShape& s, const float* x,
          const float* cosines, const float* sines, const int64_t* positions,
          bool back, bool accumulate, float* y, const ErrorSlot& errors) {
  const CpuKernel kernel(stream);
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t i = 0; i < s.length; ++i) {
      const int64_t at = b * s.length + i;
      const int64_t row = s.by_position ? positions[at] : at;
      const bool outside = s.by_position && (row < 0 || row >= s.positions);
      if (outside) Report(errors, /*kind=*/0, at, row);
      const int64_t offset = outside ? 0 : row * s.pairs;
      const Angles angles = {cosines + offset, sines + offset,
                             outside ? 0 : s.pairs, back};
      for (int64_t h = 0; h < s.heads; ++h) {
        const int64_t head = s.joined
                                 ? (at * s.heads + h) * s.width
                                 : ((b * s.heads + h) * s.length + i) * s.width;
        TurnHead(s, angles, x + head, accumulate, y + head);
      }
    }
  }
}

}  // namespace

const RotaryKernels& CpuRotaryKernels() {
  static constexpr RotaryKernels kKernels = {.turn = OnFloat32<Turn>};
  return kKernels;
}

}  // namespace syncline
