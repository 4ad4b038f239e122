#ifndef SYNCLINE_KERNELS_DEVICE_LAYER_NORM_KERNELS_H_
#define SYNCLINE_KERNELS_DEVICE_LAYER_NORM_KERNELS_H_

#include "kernels/layer_norm.h"

namespace syncline {

class Stream;

// Normalisation of rows. kernels/layer_norm.h has the formulas, the shapes and
// what may overlap; the pointers of RowNormGradients are the device's.
struct LayerNormKernels {
  // NormalizeRows
  void (*forward)(Stream& stream, const RowNorm& s, const float* x,
                  const float* scale, const float* bias, float* y, float* mean,
                  float* inverse) = nullptr;
  // NormalizeRowsGradient
  void (*backward)(Stream& stream, const RowNorm& s, const float* x,
                   const float* scale, const float* mean, const float* inverse,
                   const float* dy, const RowNormGradients& out) = nullptr;
  // AddRowMomentsGradient
  void (*add_moments_gradient)(Stream& stream, const RowNorm& s, const float* x,
                               const float* mean, const float* inverse,
                               const float* dmean, const float* dinverse,
                               float* dx) = nullptr;
};

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_DEVICE_LAYER_NORM_KERNELS_H_
