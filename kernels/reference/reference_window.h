#ifndef SYNCLINE_KERNELS_REFERENCE_REFERENCE_WINDOW_H_
#define SYNCLINE_KERNELS_REFERENCE_REFERENCE_WINDOW_H_

// reference.h for what slides a window over planes, and for what normalises
// them.

#include <cmath>
#include <utility>
#include <vector>

#include "kernels/normalization.h"
#include "kernels/reference/reference.h"
#include "kernels/reference/reference_movement.h"
#include "kernels/window.h"

namespace syncline::reference {

// Result `out` reads input `in` through element `tap` of the window; each is
// flat, within its plane.
struct Tap {
  int64_t out = 0;
  int64_t in = 0;
  int64_t tap = 0;
};

// Every tap that is inside the input, by result, then by element of the window.
inline std::vector<Tap> TapsOf(const Window& window) {
  Dims in, out, kernel;
  for (const Window::Axis& axis : window.axes) {
    in.push_back(axis.in);
    out.push_back(axis.out);
    kernel.push_back(axis.kernel);
  }
  std::vector<Tap> taps;
  for (int64_t o = 0; o < Product(out); ++o) {
    for (int64_t k = 0; k < Product(kernel); ++k) {
      const Dims at = IndexOf(o, out);
      const Dims offset = IndexOf(k, kernel);
      Dims from;
      bool inside = true;
      for (size_t d = 0; d < window.axes.size(); ++d) {
        const Window::Axis& axis = window.axes[d];
        from.push_back(at[d] * axis.stride + offset[d] * axis.dilation -
                       axis.pad_begin);
        inside = inside && from[d] >= 0 && from[d] < axis.in;
      }
      if (inside) taps.push_back({o, FlatOf(from, in), k});
    }
  }
  return taps;
}

// ---- Convolution, which is bilinear ----

// Element y has x times w added to it.
struct Product3 {
  int64_t y = 0;
  int64_t x = 0;
  int64_t w = 0;
};

// x [batch, channels, in...], w [filters, channels / groups, kernel...],
// y [batch, filters, out...].
inline std::vector<Product3> ConvolutionProducts(const Dims& x, const Dims& w,
                                                 int64_t groups,
                                                 const Window& window) {
  const std::vector<Tap> taps = TapsOf(window);
  const int64_t filters = w[0];
  const int64_t depth = w[1];
  std::vector<Product3> products;
  for (int64_t n = 0; n < x[0]; ++n) {
    for (int64_t f = 0; f < filters; ++f) {
      for (int64_t c = 0; c < depth; ++c) {
        const int64_t channel = f / (filters / groups) * depth + c;
        for (const Tap& tap : taps) {
          products.push_back(
              {(n * filters + f) * window.out_count() + tap.out,
               (n * x[1] + channel) * window.in_count() + tap.in,
               (f * depth + c) * window.kernel_count() + tap.tap});
        }
      }
    }
  }
  return products;
}

// A transposed convolution has the same products with x and y exchanged.
inline std::vector<Product3> Exchanged(std::vector<Product3> products) {
  for (Product3& p : products) std::swap(p.x, p.y);
  return products;
}

// y of dimensions `out`; with a bias for each of its channels if `in` has one.
template <typename T>
Array<T> Convolve(const std::vector<Product3>& products, const Dims& out,
                  const std::vector<Array<T>>& in) {
  Array<T> y(out);
  for (const Product3& p : products) {
    y.values[p.y] += in[0].values[p.x] * in[1].values[p.w];
  }
  if (in.size() < 3) return y;
  const int64_t plane = Product(out) / (out[0] * out[1]);
  for (size_t i = 0; i < y.values.size(); ++i) {
    y.values[i] += in[2].values[i / plane % out[1]];
  }
  return y;
}

template <typename T>
std::vector<Array<T>> ConvolveGradient(const std::vector<Product3>& products,
                                       const std::vector<Array<T>>& in,
                                       const Array<T>& dy) {
  std::vector<Array<T>> gradients;
  for (const Array<T>& array : in) gradients.emplace_back(array.dims);
  for (const Product3& p : products) {
    gradients[0].values[p.x] += dy.values[p.y] * in[1].values[p.w];
    gradients[1].values[p.w] += dy.values[p.y] * in[0].values[p.x];
  }
  if (in.size() < 3) return gradients;
  const int64_t plane = Product(dy.dims) / (dy.dims[0] * dy.dims[1]);
  for (size_t i = 0; i < dy.values.size(); ++i) {
    gradients[2].values[i / plane % dy.dims[1]] += dy.values[i];
  }
  return gradients;
}

// ---- Pooling ----

// Which input each result is: the largest of its window, the first of several.
template <typename T>
std::vector<Term> MaxPoolTerms(const Window& window, const Array<T>& x) {
  const int64_t planes = Product(x.dims) / window.in_count();
  std::vector<Term> terms;
  for (int64_t p = 0; p < planes; ++p) {
    int64_t last = -1;
    for (const Tap& tap : TapsOf(window)) {
      const Term term = {p * window.out_count() + tap.out, 0,
                         p * window.in_count() + tap.in};
      if (tap.out != last) {
        terms.push_back(term);
      } else if (x.values[term.in] > x.values[terms.back().in]) {
        terms.back() = term;
      }
      last = tap.out;
    }
  }
  return terms;
}

// The mean of a window's elements inside the input; with `include_pad` padding
// counts too, as far as it reaches.
inline std::vector<Term> AveragePoolTerms(const Window& window, int64_t planes,
                                          bool include_pad) {
  Window counted = window;
  for (size_t d = 0; d < counted.axes.size() && include_pad; ++d) {
    Window::Axis& axis = counted.axes[d];
    axis.in += axis.pad_begin + axis.pad_end;
    axis.pad_begin = 0;
  }
  std::vector<double> counts(window.out_count(), 0);
  for (const Tap& tap : TapsOf(counted)) ++counts[tap.out];
  std::vector<Term> terms;
  for (int64_t p = 0; p < planes; ++p) {
    for (const Tap& tap : TapsOf(window)) {
      terms.push_back({p * window.out_count() + tap.out, 0,
                       p * window.in_count() + tap.in, 1 / counts[tap.out]});
    }
  }
  return terms;
}

// ---- Normalisation of planes ----

// Where element i of x finds its mean, and its scale and bias.
struct NormIndex {
  NormIndex(const NormalizationShape& s, int64_t i)
      : statistic(s.StatisticOf(i / (s.channels * s.plane),
                                i / s.plane % s.channels)),
        parameter(i / s.plane % s.channels / s.channels_per_parameter) {}
  int64_t statistic;
  int64_t parameter;
};

template <typename T>
struct Moments {
  std::vector<T> mean, variance;
};

template <typename T>
Moments<T> MomentsOf(const NormalizationShape& s, const Array<T>& x) {
  Moments<T> m{std::vector<T>(s.statistic_count(), T(0)),
               std::vector<T>(s.statistic_count(), T(0))};
  const T share = T(1) / T(s.elements());
  for (size_t i = 0; i < x.values.size(); ++i) {
    m.mean[NormIndex(s, i).statistic] += x.values[i] * share;
  }
  for (size_t i = 0; i < x.values.size(); ++i) {
    const int64_t at = NormIndex(s, i).statistic;
    const T deviation = x.values[i] - m.mean[at];
    m.variance[at] += deviation * deviation * share;
  }
  return m;
}

// `in` is x, scale, bias.
template <typename T>
Array<T> Normalize(const NormalizationShape& s, const Moments<T>& m, T epsilon,
                   const std::vector<Array<T>>& in) {
  Array<T> y(in[0].dims);
  for (size_t i = 0; i < y.values.size(); ++i) {
    const NormIndex at(s, i);
    y.values[i] = (in[0].values[i] - m.mean[at.statistic]) /
                      std::sqrt(m.variance[at.statistic] + epsilon) *
                      in[1].values[at.parameter] +
                  in[2].values[at.parameter];
  }
  return y;
}

// With the moments as given, or (`fixed` false) as functions of x.
template <typename T>
std::vector<Array<T>> NormalizeGradient(const NormalizationShape& s,
                                        const Moments<T>& m, T epsilon,
                                        bool fixed,
                                        const std::vector<Array<T>>& in,
                                        const Array<T>& dy) {
  std::vector<Array<T>> d;
  for (const Array<T>& array : in) d.emplace_back(array.dims);
  std::vector<T> sum(s.statistic_count(), T(0)), sum_x(sum);
  const auto deviation = [&](const NormIndex& at) {
    return std::sqrt(m.variance[at.statistic] + epsilon);
  };
  for (size_t i = 0; i < dy.values.size(); ++i) {
    const NormIndex at(s, i);
    const T normal = (in[0].values[i] - m.mean[at.statistic]) / deviation(at);
    d[1].values[at.parameter] += dy.values[i] * normal;
    d[2].values[at.parameter] += dy.values[i];
    sum[at.statistic] += dy.values[i] * in[1].values[at.parameter];
    sum_x[at.statistic] += dy.values[i] * in[1].values[at.parameter] * normal;
  }
  for (size_t i = 0; i < dy.values.size(); ++i) {
    const NormIndex at(s, i);
    const T normal = (in[0].values[i] - m.mean[at.statistic]) / deviation(at);
    T through_moments = 0;
    if (!fixed) {
      through_moments =
          (sum[at.statistic] + normal * sum_x[at.statistic]) / T(s.elements());
    }
    d[0].values[i] =
        (dy.values[i] * in[1].values[at.parameter] - through_moments) /
        deviation(at);
  }
  return d;
}

}  // namespace syncline::reference

#endif  // SYNCLINE_KERNELS_REFERENCE_REFERENCE_WINDOW_H_
