#include "kernels/layer_norm.h"

#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/on_float32.h"
#include "kernels/device/layer_norm_kernels.h"

namespace syncline {
namespace {

void Forward(Stream& stream, const RowNorm& s, const float* x,
             const float* scale, const float* bias, float* y, float* mean,
             float* inverse) {
  const CpuKernel kernel(stream);
  NormalizeRows(s, x, scale, bias, y, mean, inverse);
}

void Backward(Stream& stream, const RowNorm& s, ConstFloats x,
              ConstFloats scale, const float* mean, const float* inverse,
              ConstFloats dy, const LayerNormKernels::Gradients& out) {
  const CpuKernel kernel(stream);
  NormalizeRowsGradient(s, x, scale, mean, inverse, dy,
                        {.dx = out.dx,
                         .dscale = out.dscale,
                         .dbias = out.dbias,
                         .add_dx = out.add_dx,
                         .add_dscale = out.add_dscale,
                         .add_dbias = out.add_dbias,
                         .scratch = out.scratch});
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
      .forward = OnFloat32<Forward>,
      .backward = Backward,
      .add_moments_gradient = AddMomentsGradient};
  return kKernels;
}

}  // namespace syncline
