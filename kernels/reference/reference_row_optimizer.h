#ifndef SYNCLINE_KERNELS_REFERENCE_REFERENCE_ROW_OPTIMIZER_H_
#define SYNCLINE_KERNELS_REFERENCE_REFERENCE_ROW_OPTIMIZER_H_

// The specification of the optimizers of table rows: one step with the mean
// gradient g.

#include <cmath>
#include <cstdint>
#include <vector>

namespace syncline::reference {

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

#endif  // SYNCLINE_KERNELS_REFERENCE_REFERENCE_ROW_OPTIMIZER_H_
