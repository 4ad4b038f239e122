#include <cmath>

#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/report.h"
#include "kernels/cuda/walk/block_fold.h"
#include "kernels/device/loss_scale_kernels.h"

namespace syncline {
namespace {

using cuda::Global;
using cuda::OnDevice;
using cuda::Shared;

struct Smaller {
  SYNCLINE_DEVICE int64_t operator()(int64_t a, int64_t b) const {
    return a < b ? a : b;
  }
};

// A block reports its first number at most: after an overflow most numbers may
// be infinite, and reports come one by one.
struct ScaleKernel {
  int64_t n;
  Global<const float> factor;
  Global<float> x;
  cuda::Reporter errors;

  SYNCLINE_DEVICE void operator()() const {
    cuda::SharedMemory memory;
    const Shared<int64_t> partial = memory.Take<int64_t>(cuda::kWarpsMax);
    const float by = factor[0];
    const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
    int64_t first_bad = n;
    for (int64_t i =
             static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
         i < n; i += step) {
      const float value = x[i] * by;
      x[i] = value;
      if (!std::isfinite(value) && first_bad == n) first_bad = i;
    }
    if (errors.record == nullptr) return;  // of all threads
    first_bad = cuda::BlockFold(first_bad, partial, Smaller());
    if (threadIdx.x != 0 || first_bad == n) return;
    errors.Report(/*kind=*/0, first_bad, /*value=*/0);
  }
};

void Scale(Stream& stream, int64_t n, const float* factor, float* x,
           const ErrorSlot& errors) {
  constexpr int64_t kThreads = cuda::kBlockThreads;
  const int64_t blocks =
      std::min((n + kThreads - 1) / kThreads, cuda::kElementBlocksMax);
  cuda::Launch(stream,
               {.blocks = blocks,
                .threads = cuda::kBlockThreads,
                .shared_bytes = cuda::kWarpsMax * sizeof(int64_t)},
               ScaleKernel{n, OnDevice(factor), OnDevice(x), OnDevice(errors)});
}

}  // namespace

const LossScaleKernels& CudaLossScaleKernels() {
  static constexpr LossScaleKernels kKernels = {.scale = Scale};
  return kKernels;
}

}  // namespace syncline
