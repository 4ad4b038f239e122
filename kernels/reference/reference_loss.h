#ifndef SYNCLINE_KERNELS_REFERENCE_REFERENCE_LOSS_H_
#define SYNCLINE_KERNELS_REFERENCE_REFERENCE_LOSS_H_

// The specification of softmax and of the losses, as
// kernels/reference/reference.h has that of the rest.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/reference/reference.h"

namespace syncline::reference {

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

}  // namespace syncline::reference

#endif  // SYNCLINE_KERNELS_REFERENCE_REFERENCE_LOSS_H_
