#include "kernels/pooling.h"

#include <algorithm>
#include <array>
#include <limits>
#include <type_traits>

#include "kernels/elementwise/loop.h"

namespace syncline {
namespace {

// Three axes, the outermost of them of size 1 where the window has fewer.
using Axes = std::array<Window::Axis, 3>;

Axes ThreeAxes(const Window& window) {
  Axes axes;
  std::copy(window.axes.begin(), window.axes.end(),
            axes.end() - window.axes.size());
  return axes;
}

// Results [begin, end) for which tap `k` is inside the input.
struct Range {
  int64_t begin, end;
};
Range InsideFor(const Window::Axis& axis, int64_t k) {
  const int64_t shift = k * axis.dilation - axis.pad_begin;
  const int64_t begin =
      shift >= 0 ? 0 : (-shift + axis.stride - 1) / axis.stride;
  const int64_t room = axis.in - 1 - shift;
  const int64_t end = room < 0 ? 0 : std::min(axis.out, room / axis.stride + 1);
  return {std::min(begin, end), end};
}

// Calls row(y, x, n): result y + i reads input x + i * stride of the innermost
// axis, for i in [0, n), through one tap of the window. Offsets are into one
// plane; taps come in the order of the window, for each row of results.
template <typename Row>
void ForEachTap(const Axes& axes, Row row) {
  const auto& [d, h, w] = axes;
  for (int64_t od = 0; od < d.out; ++od) {
    for (int64_t oh = 0; oh < h.out; ++oh) {
      const int64_t y = (od * h.out + oh) * w.out;
      for (int64_t kd = 0; kd < d.kernel; ++kd) {
        const int64_t id = od * d.stride + kd * d.dilation - d.pad_begin;
        if (id < 0 || id >= d.in) continue;
        for (int64_t kh = 0; kh < h.kernel; ++kh) {
          const int64_t ih = oh * h.stride + kh * h.dilation - h.pad_begin;
          if (ih < 0 || ih >= h.in) continue;
          for (int64_t kw = 0; kw < w.kernel; ++kw) {
            const auto [begin, end] = InsideFor(w, kw);
            const int64_t iw = begin * w.stride + kw * w.dilation - w.pad_begin;
            row(y + begin, (id * h.in + ih) * w.in + iw, end - begin);
          }
        }
      }
    }
  }
}

// Calls run with the stride as an integral constant where it is a usual one, so
// that the loops over a row are vectorised.
template <typename Run>
void WithStride(int64_t stride, Run run) {
  if (stride == 1) return run(std::integral_constant<int64_t, 1>());
  if (stride == 2) return run(std::integral_constant<int64_t, 2>());
  run(stride);
}

// One tap for n neighbouring results. The comparison lets NaN in, and nothing
// over it.
template <typename Stride>
void TakeLarger(int64_t n, Stride stride, const float* x, int32_t at, float* y,
                int32_t* indices) {
  const auto step = static_cast<int32_t>(stride);
  SYNCLINE_INDEPENDENT_ITERATIONS
  for (int64_t i = 0; i < n; ++i) {
    const float v = x[i * stride];
    const bool larger = v > y[i] || v != v || indices[i] < 0;
    y[i] = larger ? v : y[i];
    indices[i] = larger ? at + static_cast<int32_t>(i) * step : indices[i];
  }
}

template <typename Stride>
void TakeLarger(int64_t n, Stride stride, const float* x, float* y) {
  SYNCLINE_INDEPENDENT_ITERATIONS
  for (int64_t i = 0; i < n; ++i) {
    const float v = x[i * stride];
    const bool larger = v > y[i] || v != v;
    y[i] = larger ? v : y[i];
  }
}

// Windows of 2 x 2 next to each other, which fill the plane: the usual ones. Of
// 1 channel, or of a block of them, which is then the innermost axis.
struct Halving {
  int64_t rows = 0;  // of results
  int64_t columns = 0;
  int64_t channels = 0;  // 0: the window is another one
};
Halving HalvingOf(const Window& window) {
  const auto halves = [](const Window::Axis& axis) {
    return axis.kernel == 2 && axis.stride == 2 && axis.dilation == 1 &&
           axis.pad_begin == 0 && axis.in == 2 * axis.out;
  };
  const auto& axes = window.axes;
  if (axes.size() < 2 || axes.size() > 3 || !halves(axes[0]) ||
      !halves(axes[1])) {
    return {};
  }
  Halving found = {axes[0].out, axes[1].out, 1};
  if (axes.size() == 3) {
    const Window::Axis& block = axes[2];
    const bool alone = block.kernel == 1 && block.stride == 1 &&
                       block.pad_begin == 0 && block.in == block.out;
    found.channels = alone && block.in > 1 ? block.in : 0;
  }
  return found;
}

// Calls run(y, x, step, n) for n neighbouring results, with the offsets of the
// first one and of its window's first element, and how far from that the next
// one's is: along a row of one channel, or over a block.
template <typename Run>
void ForEachHalved(const Halving& h, Run run) {
  const int64_t width = 2 * h.columns * h.channels;  // of a row of x
  for (int64_t oh = 0; oh < h.rows; ++oh) {
    const int64_t y = oh * h.columns * h.channels;
    const int64_t x = 2 * oh * width;
    if (h.channels == 1) {
      run(y, x, std::integral_constant<int64_t, 2>(), h.columns);
      continue;
    }
    for (int64_t ow = 0; ow < h.columns; ++ow) {
      run(y + ow * h.channels, x + 2 * ow * h.channels,
          std::integral_constant<int64_t, 1>(), h.channels);
    }
  }
}

// TakeLarger's choice among a window's four elements, at once.
void HalvingMaxPool(const Halving& h, const float* x, float* y,
                    int32_t* indices) {
  const auto right = static_cast<int32_t>(h.channels);
  const auto below = static_cast<int32_t>(2 * h.columns * h.channels);
  ForEachHalved(h, [&](int64_t o, int64_t i, auto step, int64_t n) {
    const float* const top = x + i;
    const float* const bottom = top + below;
    SYNCLINE_INDEPENDENT_ITERATIONS
    for (int64_t k = 0; k < n; ++k) {
      const float a = top[k * step], b = top[k * step + right];
      const float c = bottom[k * step], d = bottom[k * step + right];
      const auto larger = [](float v, float than) {
        return static_cast<int>(v > than) | static_cast<int>(v != v);
      };
      const float of_top = larger(b, a) ? b : a;
      int32_t at = larger(b, a) ? right : 0;
      const float of_three = larger(c, of_top) ? c : of_top;
      at = larger(c, of_top) ? below : at;
      const float best = larger(d, of_three) ? d : of_three;
      at = larger(d, of_three) ? below + right : at;
      y[o + k] = best;
      indices[o + k] = static_cast<int32_t>(i + k * step) + at;
    }
  });
}

// Every element of dx is in one window: written once, without clearing it.
void HalvingMaxPoolGradient(const Halving& h, const int32_t* indices,
                            const float* dy, float* dx) {
  const auto right = static_cast<int32_t>(h.channels);
  const auto below = static_cast<int32_t>(2 * h.columns * h.channels);
  ForEachHalved(h, [&](int64_t o, int64_t i, auto step, int64_t n) {
    float* const top = dx + i;
    float* const bottom = top + below;
    SYNCLINE_INDEPENDENT_ITERATIONS
    for (int64_t k = 0; k < n; ++k) {
      const int32_t at = indices[o + k] - static_cast<int32_t>(i + k * step);
      const float v = dy[o + k];
      top[k * step] = at == 0 ? v : 0.0f;
      top[k * step + right] = at == right ? v : 0.0f;
      bottom[k * step] = at == below ? v : 0.0f;
      bottom[k * step + right] = at == below + right ? v : 0.0f;
    }
  });
}

// Elements of result o's window that count, along one axis.
double Counted(const Window::Axis& axis, bool include_pad, int64_t o) {
  const int64_t first = o * axis.stride - axis.pad_begin;
  int64_t count = 0;
  for (int64_t k = 0; k < axis.kernel; ++k) {
    const int64_t at = first + k * axis.dilation;
    count +=
        include_pad ? at < axis.in + axis.pad_end : at >= 0 && at < axis.in;
  }
  return static_cast<double>(std::max<int64_t>(count, 1));
}

}  // namespace

std::vector<float> AverageWeights(const Window& window, bool include_pad) {
  const Axes axes = ThreeAxes(window);
  std::vector<float> weights;
  for (int64_t od = 0; od < axes[0].out; ++od) {
    for (int64_t oh = 0; oh < axes[1].out; ++oh) {
      const double rows =
          Counted(axes[0], include_pad, od) * Counted(axes[1], include_pad, oh);
      for (int64_t ow = 0; ow < axes[2].out; ++ow) {
        weights.push_back(static_cast<float>(
            1.0 / (rows * Counted(axes[2], include_pad, ow))));
      }
    }
  }
  return weights;
}

void MaxPool(int64_t planes, const Window& window, const float* x, float* y,
             int32_t* indices) {
  const Axes axes = ThreeAxes(window);
  const int64_t in = window.in_count();
  const int64_t out = window.out_count();
  const Halving halving = HalvingOf(window);
  if (indices != nullptr && halving.channels > 0) {
    for (int64_t p = 0; p < planes; ++p) {
      HalvingMaxPool(halving, x + p * in, y + p * out, indices + p * out);
    }
    return;
  }
  std::fill_n(y, planes * out, -std::numeric_limits<float>::infinity());
  if (indices != nullptr) std::fill_n(indices, planes * out, -1);
  WithStride(axes[2].stride, [&](auto stride) {
    for (int64_t p = 0; p < planes; ++p) {
      const float* const from = x + p * in;
      float* const to = y + p * out;
      int32_t* const at = indices == nullptr ? nullptr : indices + p * out;
      ForEachTap(axes, [&](int64_t o, int64_t i, int64_t n) {
        if (at != nullptr) {
          TakeLarger(n, stride, from + i, static_cast<int32_t>(i), to + o,
                     at + o);
        } else {
          TakeLarger(n, stride, from + i, to + o);
        }
      });
    }
  });
}

void MaxPoolGradient(int64_t planes, const Window& window,
                     const int32_t* indices, const float* dy, bool accumulate,
                     float* dx) {
  const int64_t in = window.in_count();
  const int64_t out = window.out_count();
  const Halving halving = HalvingOf(window);
  if (!accumulate && halving.channels > 0) {
    for (int64_t p = 0; p < planes; ++p) {
      HalvingMaxPoolGradient(halving, indices + p * out, dy + p * out,
                             dx + p * in);
    }
    return;
  }
  if (!accumulate) std::fill_n(dx, planes * in, 0.0f);
  for (int64_t p = 0; p < planes; ++p) {
    for (int64_t o = 0; o < out; ++o) {
      const int32_t at = indices[p * out + o];
      if (at >= 0) dx[p * in + at] += dy[p * out + o];
    }
  }
}

void AveragePool(int64_t planes, const Window& window, const float* weights,
                 const float* x, float* y) {
  const Axes axes = ThreeAxes(window);
  const int64_t in = window.in_count();
  const int64_t out = window.out_count();
  std::fill_n(y, planes * out, 0.0f);
  WithStride(axes[2].stride, [&](auto stride) {
    for (int64_t p = 0; p < planes; ++p) {
      ForEachTap(axes, [&](int64_t o, int64_t i, int64_t n) {
        const float* const from = x + p * in + i;
        Emit(n, /*accumulate=*/true, y + p * out + o,
             [=](int64_t j) { return from[j * stride]; });
      });
      for (int64_t o = 0; o < out; ++o) y[p * out + o] *= weights[o];
    }
  });
}

void AveragePoolGradient(int64_t planes, const Window& window,
                         const float* weights, const float* dy, bool accumulate,
                         float* dx) {
  const Axes axes = ThreeAxes(window);
  const int64_t in = window.in_count();
  const int64_t out = window.out_count();
  if (!accumulate) std::fill_n(dx, planes * in, 0.0f);
  WithStride(axes[2].stride, [&](auto stride) {
    for (int64_t p = 0; p < planes; ++p) {
      ForEachTap(axes, [&](int64_t o, int64_t i, int64_t n) {
        const float* const from = dy + p * out + o;
        float* const to = dx + p * in + i;
        SYNCLINE_INDEPENDENT_ITERATIONS
        for (int64_t j = 0; j < n; ++j) {
          to[j * stride] += from[j] * weights[o + j];
        }
      });
    }
  });
}

}  // namespace syncline
