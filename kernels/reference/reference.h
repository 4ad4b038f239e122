#ifndef SYNCLINE_KERNELS_REFERENCE_REFERENCE_H_
#define SYNCLINE_KERNELS_REFERENCE_REFERENCE_H_

// The specification of every differentiable operation: forward and gradient,
// written for reading, templated on the element type. In double the gradients
// are held against finite differences; the shipping float32 kernels, of
// whatever device, are held against these. Slow; nothing but tests calls them.
//
// Arrays, broadcasting and activations are here, the other operations in the
// files beside this one.
//
// A gradient function takes the operation's inputs and the gradient `dy` of
// its output, and returns the gradient of each input.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "common/base/check.h"

namespace syncline::reference {

using Dims = std::vector<int64_t>;

inline int64_t Product(const Dims& dims) {
  int64_t product = 1;
  for (int64_t d : dims) product *= d;
  return product;
}

// Dense, row-major.
template <typename T>
struct Array {
  Array() = default;
  explicit Array(Dims d) : dims(std::move(d)), values(Product(dims), T(0)) {}
  Dims dims;
  std::vector<T> values;
};

// ---- Elementwise with broadcasting ----

inline Dims BroadcastTo(const Dims& a, const Dims& b) {
  Dims out(std::max(a.size(), b.size()), 1);
  for (size_t i = 0; i < out.size(); ++i) {
    const int64_t x = i < a.size() ? a[a.size() - 1 - i] : 1;
    const int64_t y = i < b.size() ? b[b.size() - 1 - i] : 1;
    SYNCLINE_CHECK(x == y || x == 1 || y == 1);
    out[out.size() - 1 - i] = x == 1 ? y : x;
  }
  return out;
}

// Offset into an array of shape `dims` of what is at `flat` in `out`.
inline int64_t BroadcastOffset(int64_t flat, const Dims& out,
                               const Dims& dims) {
  int64_t offset = 0;
  int64_t stride = 1;
  for (size_t i = 0; i < out.size(); ++i) {
    const int64_t n = out[out.size() - 1 - i];
    const int64_t index = flat % n;
    flat /= n;
    if (i >= dims.size()) continue;
    const int64_t d = dims[dims.size() - 1 - i];
    if (d != 1) offset += index * stride;
    stride *= d;
  }
  return offset;
}

// y = f(a, b).
template <typename T, typename F>
Array<T> Binary(const Array<T>& a, const Array<T>& b, F f) {
  Array<T> y(BroadcastTo(a.dims, b.dims));
  for (int64_t i = 0; i < Product(y.dims); ++i) {
    y.values[i] = f(a.values[BroadcastOffset(i, y.dims, a.dims)],
                    b.values[BroadcastOffset(i, y.dims, b.dims)]);
  }
  return y;
}

// fa(a, b) and fb(a, b) are the partial derivatives of f.
template <typename T, typename FA, typename FB>
std::vector<Array<T>> BinaryGradient(const Array<T>& a, const Array<T>& b,
                                     const Array<T>& dy, FA fa, FB fb) {
  Array<T> da(a.dims);
  Array<T> db(b.dims);
  for (int64_t i = 0; i < Product(dy.dims); ++i) {
    const int64_t ia = BroadcastOffset(i, dy.dims, a.dims);
    const int64_t ib = BroadcastOffset(i, dy.dims, b.dims);
    da.values[ia] += dy.values[i] * fa(a.values[ia], b.values[ib]);
    db.values[ib] += dy.values[i] * fb(a.values[ia], b.values[ib]);
  }
  return {da, db};
}

// Index of element `flat`, and back.
inline Dims IndexOf(int64_t flat, const Dims& dims) {
  Dims index(dims.size());
  for (size_t d = dims.size(); d-- > 0; flat /= dims[d]) {
    index[d] = flat % dims[d];
  }
  return index;
}
inline int64_t FlatOf(const Dims& index, const Dims& dims) {
  int64_t flat = 0;
  for (size_t d = 0; d < dims.size(); ++d) flat = flat * dims[d] + index[d];
  return flat;
}

// ---- Activations: value and derivative at x ----

struct Relu {
  template <typename T>
  static T Value(T x) {
    return x > 0 ? x : T(0);
  }
  template <typename T>
  static T Derivative(T x) {
    return x > 0 ? T(1) : T(0);
  }
};

struct Sigmoid {
  template <typename T>
  static T Value(T x) {
    return T(1) / (T(1) + std::exp(-x));
  }
  template <typename T>
  static T Derivative(T x) {
    return Value(x) * (T(1) - Value(x));
  }
};

struct Tanh {
  template <typename T>
  static T Value(T x) {
    return std::tanh(x);
  }
  template <typename T>
  static T Derivative(T x) {
    return T(1) - std::tanh(x) * std::tanh(x);
  }
};

struct Gelu {
  template <typename T>
  static T Phi(T x) {
    return (T(1) + std::erf(x / std::sqrt(T(2)))) / T(2);
  }
  template <typename T>
  static T Value(T x) {
    return x * Phi(x);
  }
  template <typename T>
  static T Derivative(T x) {
    const T density = std::exp(-x * x / T(2)) / std::sqrt(T(2 * M_PI));
    return Phi(x) + x * density;
  }
};

struct GeluTanh {
  template <typename T>
  static T Inner(T x) {
    return std::sqrt(T(2 / M_PI)) * (x + T(0.044715) * x * x * x);
  }
  template <typename T>
  static T Value(T x) {
    return x * (T(1) + std::tanh(Inner(x))) / T(2);
  }
  template <typename T>
  static T Derivative(T x) {
    const T t = std::tanh(Inner(x));
    const T inner =
        std::sqrt(T(2 / M_PI)) * (T(1) + T(3) * T(0.044715) * x * x);
    return (T(1) + t) / T(2) + x * (T(1) - t * t) * inner / T(2);
  }
};

template <typename F, typename T>
Array<T> Unary(const Array<T>& x) {
  Array<T> y(x.dims);
  for (size_t i = 0; i < x.values.size(); ++i) {
    y.values[i] = F::Value(x.values[i]);
  }
  return y;
}

template <typename F, typename T>
std::vector<Array<T>> UnaryGradient(const Array<T>& x, const Array<T>& dy) {
  Array<T> dx(x.dims);
  for (size_t i = 0; i < x.values.size(); ++i) {
    dx.values[i] = dy.values[i] * F::Derivative(x.values[i]);
  }
  return {dx};
}

}  // namespace syncline::reference

#endif  // SYNCLINE_KERNELS_REFERENCE_REFERENCE_H_
