#ifndef SYNCLINE_KERNELS_DEVICE_LAYER_NORM_KERNELS_H_
#define SYNCLINE_KERNELS_DEVICE_LAYER_NORM_KERNELS_H_

#include "kernels/device/floats.h"
#include "kernels/layer_norm.h"

namespace syncline {

class Stream;

// Normalisation of rows. kernels/layer_norm.h has the formulas, the shapes and
// what may overlap. Statistics are float32.
struct LayerNormKernels {
  // RowNormGradients, typed.
  struct Gradients {
    Floats dx = nullptr;
    Floats dscale = nullptr;
    Floats dbias = nullptr;
    bool add_dx = false;
    bool add_dscale = false;
    bool add_dbias = false;
    void* scratch = nullptr;
  };
  // NormalizeRows
  void (*forward)(Stream& stream, const RowNorm& s, ConstFloats x,
                  ConstFloats scale, ConstFloats bias, Floats y, float* mean,
                  float* inverse) = nullptr;
  // NormalizeRowsGradient
  void (*backward)(Stream& stream, const RowNorm& s, ConstFloats x,
                   ConstFloats scale, const float* mean, const float* inverse,
                   ConstFloats dy, const Gradients& out) = nullptr;
  // AddRowMomentsGradient
  void (*add_moments_gradient)(Stream& stream, const RowNorm& s, const float* x,
                               const float* mean, const float* inverse,
                               const float* dmean, const float* dinverse,
                               float* dx) = nullptr;
};

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_DEVICE_LAYER_NORM_KERNELS_H_
