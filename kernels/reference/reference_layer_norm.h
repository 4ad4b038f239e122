#ifndef SYNCLINE_KERNELS_REFERENCE_REFERENCE_LAYER_NORM_H_
#define SYNCLINE_KERNELS_REFERENCE_REFERENCE_LAYER_NORM_H_

// The specification of normalisation over the last dimensions of an array, as
// kernels/reference/reference.h has that of the rest.

#include <cmath>

#include "kernels/reference/reference.h"

namespace syncline::reference {

struct LayerNormAttributes {
  size_t axis = 0;  // dimensions from here on are one row
  double epsilon = 1e-5;
  bool centred = true;  // else by the root of the mean square
};

template <typename T>
struct NormalizedRow {
  T mean = 0;
  T inverse = 0;
  std::vector<T> values;  // before scale and bias
};

template <typename T>
NormalizedRow<T> NormalizeRow(const LayerNormAttributes& a, const T* x,
                              int64_t n) {
  NormalizedRow<T> row;
  for (int64_t i = 0; a.centred && i < n; ++i) row.mean += x[i] / T(n);
  T variance = 0;
  for (int64_t i = 0; i < n; ++i) {
    variance += (x[i] - row.mean) * (x[i] - row.mean) / T(n);
  }
  row.inverse = T(1) / std::sqrt(variance + T(a.epsilon));
  for (int64_t i = 0; i < n; ++i) {
    row.values.push_back((x[i] - row.mean) * row.inverse);
  }
  return row;
}

inline int64_t RowLength(const Dims& dims, size_t axis) {
  return Product(Dims(dims.begin() + axis, dims.end()));
}

// in: x, scale and, where there is one, bias, each of a row's length.
template <typename T>
Array<T> LayerNorm(const LayerNormAttributes& a,
                   const std::vector<Array<T>>& in) {
  const int64_t n = RowLength(in[0].dims, a.axis);
  Array<T> y(in[0].dims);
  for (int64_t at = 0; at < Product(y.dims); at += n) {
    const auto row = NormalizeRow(a, in[0].values.data() + at, n);
    for (int64_t i = 0; i < n; ++i) {
      y.values[at + i] = row.values[i] * in[1].values[i] +
                         (in.size() > 2 ? in[2].values[i] : T(0));
    }
  }
  return y;
}

// With h the normalised row and g = dy * scale, the derivative of h[j] by x[i]
// is inverse * ((i == j) - [centred] / n - h[i] * h[j] / n).
template <typename T>
std::vector<Array<T>> LayerNormGradient(const LayerNormAttributes& a,
                                        const std::vector<Array<T>>& in,
                                        const Array<T>& dy) {
  const int64_t n = RowLength(in[0].dims, a.axis);
  std::vector<Array<T>> d;
  for (const Array<T>& x : in) d.emplace_back(x.dims);
  for (int64_t at = 0; at < Product(dy.dims); at += n) {
    const auto row = NormalizeRow(a, in[0].values.data() + at, n);
    for (int64_t j = 0; j < n; ++j) {
      const T up = dy.values[at + j];
      d[1].values[j] += up * row.values[j];
      if (in.size() > 2) d[2].values[j] += up;
      for (int64_t i = 0; i < n; ++i) {
        const T derivative = T(i == j) - T(a.centred) / T(n) -
                             row.values[i] * row.values[j] / T(n);
        d[0].values[at + i] += up * in[1].values[j] * row.inverse * derivative;
      }
    }
  }
  return d;
}

}  // namespace syncline::reference

#endif  // SYNCLINE_KERNELS_REFERENCE_REFERENCE_LAYER_NORM_H_
