#ifndef SYNCLINE_KERNELS_REFERENCE_REFERENCE_MATRIX_H_
#define SYNCLINE_KERNELS_REFERENCE_REFERENCE_MATRIX_H_

// The specification of matrix products, as kernels/reference/reference.h has
// that of the rest.

#include <cstdint>
#include <vector>

#include "common/base/check.h"
#include "kernels/reference/reference.h"

namespace syncline::reference {

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

}  // namespace syncline::reference

#endif  // SYNCLINE_KERNELS_REFERENCE_REFERENCE_MATRIX_H_
