#ifndef SYNCLINE_KERNELS_REFERENCE_REFERENCE_H_
#define SYNCLINE_KERNELS_REFERENCE_REFERENCE_H_

// The specification of every differentiable operation: forward and gradient,
// written for reading, templated on the element type. In double the gradients
// are held against finite differences; the shipping float32 kernels, of
// whatever device, are held against these. Slow; nothing but tests calls them.
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

// ---- Operations that move and add elements ----

// Element `out` of the result has `weight` times element `in` of input `input`
// added to it. A list of these is the operation, and read the other way round
// its gradient.
struct Term {
  int64_t out = 0;
  size_t input = 0;
  int64_t in = 0;
  double weight = 1;
};

template <typename T>
Array<T> Linear(const std::vector<Term>& terms, const Dims& out,
                const std::vector<Array<T>>& in) {
  Array<T> y(out);
  for (const Term& t : terms) {
    y.values[t.out] += T(t.weight) * in[t.input].values[t.in];
  }
  return y;
}

template <typename T>
std::vector<Array<T>> LinearGradient(const std::vector<Term>& terms,
                                     const std::vector<Array<T>>& in,
                                     const Array<T>& dy) {
  std::vector<Array<T>> dx;
  for (const Array<T>& x : in) dx.emplace_back(x.dims);
  for (const Term& t : terms) {
    dx[t.input].values[t.in] += T(t.weight) * dy.values[t.out];
  }
  return dx;
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

// `dims` with `with` in place of dimension `axis`.
inline Dims Replaced(const Dims& dims, size_t axis, const Dims& with) {
  Dims out(dims.begin(), dims.begin() + axis);
  out.insert(out.end(), with.begin(), with.end());
  out.insert(out.end(), dims.begin() + axis + 1, dims.end());
  return out;
}

// ONNX Gather; negative indices count from the end.
inline std::vector<Term> GatherTerms(const Dims& data, size_t axis,
                                     const Dims& index_dims,
                                     const std::vector<int64_t>& indices) {
  const Dims out = Replaced(data, axis, index_dims);
  std::vector<Term> terms;
  for (int64_t o = 0; o < Product(out); ++o) {
    const Dims at = IndexOf(o, out);
    const auto begin = at.begin() + axis;
    const auto end = begin + index_dims.size();
    int64_t k = indices[FlatOf(Dims(begin, end), index_dims)];
    if (k < 0) k += data[axis];
    Dims from(at.begin(), begin);
    from.push_back(k);
    from.insert(from.end(), end, at.end());
    terms.push_back({o, 0, FlatOf(from, data)});
  }
  return terms;
}

// Sums times `weight`; `kept` are the dims with 1 for those summed over.
inline std::vector<Term> ReduceTerms(const Dims& data, const Dims& kept,
                                     double weight) {
  std::vector<Term> terms;
  for (int64_t i = 0; i < Product(data); ++i) {
    terms.push_back({BroadcastOffset(i, data, kept), 0, i, weight});
  }
  return terms;
}

inline std::vector<Term> ConcatTerms(const std::vector<Dims>& in, size_t axis,
                                     const Dims& out) {
  std::vector<Term> terms;
  int64_t begin = 0;
  for (size_t n = 0; n < in.size(); ++n) {
    for (int64_t i = 0; i < Product(in[n]); ++i) {
      Dims at = IndexOf(i, in[n]);
      at[axis] += begin;
      terms.push_back({FlatOf(at, out), n, i});
    }
    begin += in[n][axis];
  }
  return terms;
}

// Dimension d of the result is dimension permutation[d] of the data.
inline std::vector<Term> TransposeTerms(const Dims& data,
                                        const std::vector<int64_t>& permutation,
                                        const Dims& out) {
  std::vector<Term> terms;
  for (int64_t o = 0; o < Product(out); ++o) {
    const Dims at = IndexOf(o, out);
    Dims from(data.size());
    for (size_t d = 0; d < at.size(); ++d) from[permutation[d]] = at[d];
    terms.push_back({o, 0, FlatOf(from, data)});
  }
  return terms;
}

// ONNX ScatterND with reduction "add": input 0 is the data, input 1 here are
// the updates. `width` indices make a tuple.
inline std::vector<Term> ScatterAddTerms(const Dims& data, size_t width,
                                         const std::vector<int64_t>& indices) {
  const Dims indexed(data.begin(), data.begin() + width);
  const int64_t inner = Product(Dims(data.begin() + width, data.end()));
  std::vector<Term> terms;
  for (int64_t i = 0; i < Product(data); ++i) terms.push_back({i, 0, i});
  for (size_t tuple = 0; tuple * width < indices.size(); ++tuple) {
    Dims at(indices.begin() + tuple * width,
            indices.begin() + (tuple + 1) * width);
    for (size_t d = 0; d < width; ++d) at[d] += at[d] < 0 ? data[d] : 0;
    for (int64_t k = 0; k < inner; ++k) {
      const int64_t update = static_cast<int64_t>(tuple) * inner + k;
      terms.push_back({FlatOf(at, indexed) * inner + k, 1, update});
    }
  }
  return terms;
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

// ---- Matrix products ----

// Element (row, column) of a matrix [rows, columns] stored transposed or not.
template <typename T>
const T& At(const T* matrix, int64_t rows, int64_t columns, bool transposed,
            int64_t row, int64_t column) {
  return transposed ? matrix[column * rows + row]
                    : matrix[row * columns + column];
}

// c[m,n] = alpha * op(a)[m,k] * op(b)[k,n]
template <typename T>
void Multiply(int64_t m, int64_t n, int64_t k, T alpha, const T* a, bool ta,
              const T* b, bool tb, T* c) {
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      T sum = 0;
      for (int64_t p = 0; p < k; ++p) {
        sum += At(a, m, k, ta, i, p) * At(b, k, n, tb, p, j);
      }
      c[i * n + j] = alpha * sum;
    }
  }
}

// Adds the gradients of alpha * op(a) * op(b) to da and db.
template <typename T>
void MultiplyGradient(int64_t m, int64_t n, int64_t k, T alpha, const T* a,
                      bool ta, const T* b, bool tb, const T* dc, T* da, T* db) {
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      const T d = alpha * dc[i * n + j];
      for (int64_t p = 0; p < k; ++p) {
        const_cast<T&>(At(da, m, k, ta, i, p)) += d * At(b, k, n, tb, p, j);
        const_cast<T&>(At(db, k, n, tb, p, j)) += d * At(a, m, k, ta, i, p);
      }
    }
  }
}

struct GemmAttributes {
  bool transpose_a = false;
  bool transpose_b = false;
  double alpha = 1;
  double beta = 1;
};

// ONNX Gemm: alpha * op(a) * op(b) + beta * c; c may be omitted.
template <typename T>
Array<T> Gemm(const GemmAttributes& g, const Array<T>& a, const Array<T>& b,
              const Array<T>* c) {
  const int64_t m = g.transpose_a ? a.dims[1] : a.dims[0];
  const int64_t k = g.transpose_a ? a.dims[0] : a.dims[1];
  const int64_t n = g.transpose_b ? b.dims[0] : b.dims[1];
  Array<T> y(Dims{m, n});
  Multiply(m, n, k, T(g.alpha), a.values.data(), g.transpose_a, b.values.data(),
           g.transpose_b, y.values.data());
  if (c == nullptr) return y;
  return Binary(y, *c, [&](T p, T q) { return p + T(g.beta) * q; });
}

template <typename T>
std::vector<Array<T>> GemmGradient(const GemmAttributes& g, const Array<T>& a,
                                   const Array<T>& b, const Array<T>* c,
                                   const Array<T>& dy) {
  const int64_t m = dy.dims[0];
  const int64_t n = dy.dims[1];
  const int64_t k = g.transpose_a ? a.dims[0] : a.dims[1];
  Array<T> da(a.dims);
  Array<T> db(b.dims);
  MultiplyGradient(m, n, k, T(g.alpha), a.values.data(), g.transpose_a,
                   b.values.data(), g.transpose_b, dy.values.data(),
                   da.values.data(), db.values.data());
  if (c == nullptr) return {da, db};
  const auto gradients = BinaryGradient(
      dy, *c, dy, [](T, T) { return T(0); }, [&](T, T) { return T(g.beta); });
  return {da, db, gradients[1]};
}

// How numpy.matmul sees its operands: stacks of matrices.
struct Stacks {
  Dims a_stack, b_stack, stack;  // broadcast dimensions
  int64_t m, n, k;
  Dims y;
};

inline Stacks StacksOf(Dims a, Dims b) {
  const bool row = a.size() == 1;     // [k] is [1, k], and m is dropped
  const bool column = b.size() == 1;  // [k] is [k, 1], and n is dropped
  if (row) a.insert(a.begin(), 1);
  if (column) b.push_back(1);
  Stacks s;
  s.a_stack.assign(a.begin(), a.end() - 2);
  s.b_stack.assign(b.begin(), b.end() - 2);
  s.stack = BroadcastTo(s.a_stack, s.b_stack);
  s.m = a[a.size() - 2];
  s.k = a.back();
  s.n = b.back();
  SYNCLINE_CHECK(b[b.size() - 2] == s.k);
  s.y = s.stack;
  if (!row) s.y.push_back(s.m);
  if (!column) s.y.push_back(s.n);
  return s;
}

template <typename T>
Array<T> MatMul(const Array<T>& a, const Array<T>& b) {
  const Stacks s = StacksOf(a.dims, b.dims);
  Array<T> y(s.y);
  for (int64_t i = 0; i < Product(s.stack); ++i) {
    const int64_t ia = BroadcastOffset(i, s.stack, s.a_stack) * s.m * s.k;
    const int64_t ib = BroadcastOffset(i, s.stack, s.b_stack) * s.k * s.n;
    Multiply(s.m, s.n, s.k, T(1), &a.values[ia], false, &b.values[ib], false,
             &y.values[i * s.m * s.n]);
  }
  return y;
}

template <typename T>
std::vector<Array<T>> MatMulGradient(const Array<T>& a, const Array<T>& b,
                                     const Array<T>& dy) {
  const Stacks s = StacksOf(a.dims, b.dims);
  Array<T> da(a.dims);
  Array<T> db(b.dims);
  for (int64_t i = 0; i < Product(s.stack); ++i) {
    const int64_t ia = BroadcastOffset(i, s.stack, s.a_stack) * s.m * s.k;
    const int64_t ib = BroadcastOffset(i, s.stack, s.b_stack) * s.k * s.n;
    MultiplyGradient(s.m, s.n, s.k, T(1), &a.values[ia], false, &b.values[ib],
                     false, &dy.values[i * s.m * s.n], &da.values[ia],
                     &db.values[ib]);
  }
  return {da, db};
}

// ---- Softmax over the dimensions [begin, end) ----

template <typename T>
Array<T> Softmax(const Array<T>& x, int64_t begin, int64_t end) {
  const int64_t n = Product(Dims(x.dims.begin() + begin, x.dims.begin() + end));
  const int64_t inner = Product(Dims(x.dims.begin() + end, x.dims.end()));
  Array<T> y(x.dims);
  const auto line = [&](int64_t i, int64_t j) {  // j-th of i's line
    return i / (n * inner) * (n * inner) + j * inner + i % inner;
  };
  for (int64_t i = 0; i < Product(x.dims); ++i) {
    T max = x.values[i];
    for (int64_t j = 0; j < n; ++j) max = std::max(max, x.values[line(i, j)]);
    T sum = 0;
    for (int64_t j = 0; j < n; ++j) sum += std::exp(x.values[line(i, j)] - max);
    y.values[i] = std::exp(x.values[i] - max) / sum;
  }
  return y;
}

// The Jacobian, summed: dx[i] = sum over j of dy[j] * y[j] * ((i == j) - y[i]).
template <typename T>
std::vector<Array<T>> SoftmaxGradient(const Array<T>& x, int64_t begin,
                                      int64_t end, const Array<T>& dy) {
  const Array<T> y = Softmax(x, begin, end);
  const int64_t n = Product(Dims(x.dims.begin() + begin, x.dims.begin() + end));
  const int64_t inner = Product(Dims(x.dims.begin() + end, x.dims.end()));
  Array<T> dx(x.dims);
  for (int64_t i = 0; i < Product(x.dims); ++i) {
    for (int64_t l = 0; l < n; ++l) {
      const int64_t j = i / (n * inner) * (n * inner) + l * inner + i % inner;
      dx.values[i] +=
          dy.values[j] * y.values[j] * (T(i == j ? 1 : 0) - y.values[i]);
    }
  }
  return {dx};
}

template <typename T>
Array<T> LogSoftmax(const Array<T>& x, int64_t begin, int64_t end) {
  Array<T> y = Softmax(x, begin, end);
  for (T& v : y.values) v = std::log(v);
  return y;
}

// log is applied to Softmax's output: the chain rule through it.
template <typename T>
std::vector<Array<T>> LogSoftmaxGradient(const Array<T>& x, int64_t begin,
                                         int64_t end, const Array<T>& dy) {
  const Array<T> y = Softmax(x, begin, end);
  Array<T> d_softmax(x.dims);
  for (size_t i = 0; i < y.values.size(); ++i) {
    d_softmax.values[i] = dy.values[i] / y.values[i];
  }
  return SoftmaxGradient(x, begin, end, d_softmax);
}

// ---- Losses, summed over rows: x is [rows, width] ----

template <typename T>
T SoftmaxCrossEntropy(const Array<T>& x, const std::vector<T>& labels) {
  const Array<T> y = LogSoftmax(x, 1, 2);
  T loss = 0;
  for (size_t r = 0; r < labels.size(); ++r) {
    loss -= y.values[r * x.dims[1] + static_cast<size_t>(labels[r])];
  }
  return loss;
}

template <typename T>
Array<T> SoftmaxCrossEntropyGradient(const Array<T>& x,
                                     const std::vector<T>& labels) {
  Array<T> dx = Softmax(x, 1, 2);
  for (size_t r = 0; r < labels.size(); ++r) {
    dx.values[r * x.dims[1] + static_cast<size_t>(labels[r])] -= T(1);
  }
  return dx;
}

template <typename T>
T SigmoidCrossEntropy(const Array<T>& x, const std::vector<T>& labels) {
  T loss = 0;
  for (size_t r = 0; r < labels.size(); ++r) {
    const T p = Sigmoid::Value(x.values[r]);
    loss -= labels[r] * std::log(p) + (T(1) - labels[r]) * std::log(T(1) - p);
  }
  return loss;
}

template <typename T>
Array<T> SigmoidCrossEntropyGradient(const Array<T>& x,
                                     const std::vector<T>& labels) {
  Array<T> dx(x.dims);
  for (size_t r = 0; r < labels.size(); ++r) {
    dx.values[r] = Sigmoid::Value(x.values[r]) - labels[r];
  }
  return dx;
}

template <typename T>
T MeanSquaredError(const Array<T>& x, const std::vector<T>& targets) {
  T loss = 0;
  for (size_t i = 0; i < targets.size(); ++i) {
    const T difference = x.values[i] - targets[i];
    loss += difference * difference / T(x.dims[1]);
  }
  return loss;
}

template <typename T>
Array<T> MeanSquaredErrorGradient(const Array<T>& x,
                                  const std::vector<T>& targets) {
  Array<T> dx(x.dims);
  for (size_t i = 0; i < targets.size(); ++i) {
    dx.values[i] = T(2) * (x.values[i] - targets[i]) / T(x.dims[1]);
  }
  return dx;
}

// ---- Optimizers of table rows: one step with the mean gradient g ----

// Which of the state is used, and what it starts as, is the optimizer's affair.
template <typename T>
struct Row {
  std::vector<T> value;
  std::vector<T> first;   // first moments, or z
  std::vector<T> second;  // second moments, or sums of squares
  T mean_squares = 0;
  int64_t steps = 0;
};

template <typename T>
void SgdRow(T rate, const std::vector<T>& g, Row<T>* row) {
  for (size_t i = 0; i < g.size(); ++i) row->value[i] -= rate * g[i];
}

template <typename T>
void AdagradRow(T rate, T epsilon, const std::vector<T>& g, Row<T>* row) {
  for (size_t i = 0; i < g.size(); ++i) {
    row->second[i] += g[i] * g[i];
    row->value[i] -= rate * g[i] / (std::sqrt(row->second[i]) + epsilon);
  }
}

template <typename T>
void RowWiseAdagradRow(T rate, T epsilon, const std::vector<T>& g,
                       Row<T>* row) {
  T squares = 0;
  for (const T v : g) squares += v * v;
  row->mean_squares += squares / T(g.size());
  for (size_t i = 0; i < g.size(); ++i) {
    row->value[i] -= rate * g[i] / (std::sqrt(row->mean_squares) + epsilon);
  }
}

template <typename T>
void LazyAdamRow(T rate, T beta1, T beta2, T epsilon, const std::vector<T>& g,
                 Row<T>* row) {
  ++row->steps;
  const T t = T(row->steps);
  for (size_t i = 0; i < g.size(); ++i) {
    T& m = row->first[i];
    T& s = row->second[i];
    m = beta1 * m + (T(1) - beta1) * g[i];
    s = beta2 * s + (T(1) - beta2) * g[i] * g[i];
    const T m_hat = m / (T(1) - std::pow(beta1, t));
    const T s_hat = s / (T(1) - std::pow(beta2, t));
    row->value[i] -= rate * m_hat / (std::sqrt(s_hat) + epsilon);
  }
}

// `power` is the learning-rate power, -1/2 in the paper.
template <typename T>
void FtrlRow(T rate, T power, T l1, T l2, const std::vector<T>& g,
             Row<T>* row) {
  for (size_t i = 0; i < g.size(); ++i) {
    T& z = row->first[i];
    T& n = row->second[i];
    const T before = std::pow(n, -power) / rate;
    n += g[i] * g[i];
    const T after = std::pow(n, -power) / rate;
    z += g[i] - (after - before) * row->value[i];
    if (n == 0) continue;
    const T sign = z < 0 ? T(-1) : T(1);
    row->value[i] = std::abs(z) <= l1 ? T(0) : (sign * l1 - z) / (after + l2);
  }
}

}  // namespace syncline::reference

#endif  // SYNCLINE_KERNELS_REFERENCE_REFERENCE_H_
