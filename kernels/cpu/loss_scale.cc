#include <algorithm>
#include <cmath>

#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/report.h"
#include "kernels/device/loss_scale_kernels.h"
#include "kernels/elementwise/loop.h"
#include "kernels/threads.h"

namespace syncline {
namespace {

// Numbers that are looked at while they are in the cache.
constexpr int64_t kPiece = 4096;

// An infinity or a NaN less itself is NaN. Without branches, so vectorised.
bool HasNonFinite(const float* x, int64_t n) {
  int found = 0;
  for (int64_t i = 0; i < n; ++i) found |= (x[i] - x[i] != 0) ? 1 : 0;
  return found != 0;
}

void Scale(Stream& stream, int64_t n, const float* factor, float* x,
           const ErrorSlot& errors) {
  const CpuKernel kernel(stream);
  const float by = *factor;
  ParallelFor(n, kElementsPerThread, [=](int64_t begin, int64_t end) {
    for (int64_t first = begin; first < end; first += kPiece) {
      const int64_t count = std::min(kPiece, end - first);
      float* const piece = x + first;
      Emit(count, /*accumulate=*/false, piece,
           [=](int64_t i) { return piece[i] * by; });
      if (errors.record == nullptr || !HasNonFinite(piece, count)) continue;
      int64_t at = 0;
      while (std::isfinite(piece[at])) ++at;
      Report(errors, /*kind=*/0, first + at, /*value=*/0);
    }
  });
}

}  // namespace

const LossScaleKernels& CpuLossScaleKernels() {
  static constexpr LossScaleKernels kKernels = {.scale = Scale};
  return kKernels;
}

}  // namespace syncline
