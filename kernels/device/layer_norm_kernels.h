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

  // Of the rows' sum a + b: rounded once to its array, and `forward` of what it
  // then is. The bits are those of the sum, and of `forward` after it. `sum`
  // may be a, or b; y is null where it is not wanted. Null, and so is the next
  // one: the device does not have it.
  void (*add_forward)(Stream& stream, const RowNorm& s, ConstFloats a,
                      ConstFloats b, ConstFloats scale, ConstFloats bias,
                      Floats sum, Floats y, float* mean,
                      float* inverse) = nullptr;
  struct SummandGradients {
    Floats da = nullptr;  // null: not wanted
    Floats db = nullptr;
    bool add_da = false;
    bool add_db = false;
    DType sum_type = DType::kFloat32;  // that the sum's gradient is rounded to
  };
  // The gradient of the sum, to both summands: that by the normalisation, added
  // to `dsum`, which is that by its other readers; null: there are none. The
  // bits are those of `backward`'s dx added to dsum, and of the sum's gradient
  // after it. da may be dsum, or else overlaps nothing, nor does db.
  void (*add_backward)(Stream& stream, const RowNorm& s, ConstFloats sum,
                       ConstFloats scale, const float* mean,
                       const float* inverse, ConstFloats dy, ConstFloats dsum,
                       const SummandGradients& out) = nullptr;
};

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_DEVICE_LAYER_NORM_KERNELS_H_
