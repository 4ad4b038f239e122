#include "kernels/layer_norm.h"

#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/device/layer_norm_kernels.h"

namespace syncline {
namespace {

void Forward(Stream& stream, const RowNorm& s, const float* x,
             const float* scale, const float* bias, float* y, float* mean,
             float* inverse) {
  const CpuKernel kernel(stream);
  NormalizeRows(s, x, scale, bias, y, mean, inverse);
}

void Backward(Stream& stream, const RowNorm& s, const float* x,
              const float* scale, const float* mean, const float* inverse,
              const float* dy, const RowNormGradients& out) {
  const CpuKernel kernel(stream);
  NormalizeRowsGradient(s, x, scale, mean, inverse, dy, out);
}

void AddMomentsGradient(Stream& stream, const RowNorm& s, const float* x,
                        const float* mean, const float* inverse,
                        const float* dmean, const float* dinverse, float* dx) {
  const CpuKernel kernel(stream);
  AddRowMomentsGradient(s, x, mean, inverse, dmean, dinverse, dx);
}

}  // namespace

const LayerNormKernels& CpuLayerNormKernels() {
  static constexpr LayerNormKernels kKernels = {
      .forward = Forward,
      .backward = Backward,
      .add_moments_gradient = AddMomentsGradient};
  return kKernels;
}

}  // namespace syncline
