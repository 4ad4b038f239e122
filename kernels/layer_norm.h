#ifndef SYNCLINE_KERNELS_LAYER_NORM_H_
#define SYNCLINE_KERNELS_LAYER_NORM_H_

// Layer normalisation (Ba, Kiros and Hinton 2016) and root mean square
// normalisation (Zhang and Sennrich 2019) of `rows` rows of n elements:
//
//   y = (x - mean) * inverse * scale + bias
//       inverse = 1 / sqrt(variance + epsilon)
//   y = x * inverse * scale, inverse = 1 / sqrt(mean(x^2) + epsilon)
//
// float32, dense row-major. Thread-compatible.

#include <cstdint>

namespace syncline {

struct RowNorm {
  int64_t rows = 0;
  int64_t n = 0;  // > 0
  float epsilon = 1e-5f;
  bool centred = true;  // the mean is subtracted: layer normalisation
};

// `scale` and `bias` are [n]; bias may be null. Writes `mean` (unless it is
// null, or not centred) and `inverse`, each [rows]. y may be x.
void NormalizeRows(const RowNorm& s, const float* x, const float* scale,
                   const float* bias, float* y, float* mean, float* inverse);

struct RowNormGradients {
  // Null: not wanted. dx may be dy; the others overlap nothing.
  float* dx = nullptr;
  float* dscale = nullptr;
  float* dbias = nullptr;
  // Add to what is there; else overwrite.
  bool add_dx = false;
  bool add_dscale = false;
  bool add_dbias = false;
  // Overwritten: RowNormScratchBytes(n), 8-byte aligned. Needed for dscale and
  // dbias.
  void* scratch = nullptr;
};

// Bytes that the sums of dscale and dbias over all rows take.
constexpr int64_t RowNormScratchBytes(int64_t n) {
  return 2 * n * static_cast<int64_t>(sizeof(double) + sizeof(float));
}

// All gradients in one pass over x and dy. `mean` and `inverse` as above.
void NormalizeRowsGradient(const RowNorm& s, const float* x, const float* scale,
                           const float* mean, const float* inverse,
                           const float* dy, const RowNormGradients& out);

// Gradients of `mean` and `inverse` themselves, each [rows] or null, added to
// dx.
void AddRowMomentsGradient(const RowNorm& s, const float* x, const float* mean,
                           const float* inverse, const float* dmean,
                           const float* dinverse, float* dx);

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_LAYER_NORM_H_
