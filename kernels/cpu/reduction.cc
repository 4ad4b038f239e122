#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/on_float32.h"
#include "kernels/device/reduction_kernels.h"
#include "kernels/elementwise/binary_loop.h"
#include "kernels/elementwise/broadcast.h"
#include "kernels/elementwise/loop.h"

namespace syncline {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

void Sum(Stream& stream, const Broadcast& s, float scale, const float* x,
         float* y) {
  const CpuKernel kernel(stream);
  std::fill_n(y, s.b_count, 0.0f);
  AddUpGradient(s, Side::kB, y,
                [x](int64_t, int64_t a, int64_t) { return x[a]; });
  if (scale == 1) return;
  for (int64_t i = 0; i < s.b_count; ++i) y[i] *= scale;
}

void SumBackward(Stream& stream, const Broadcast& s, float scale,
                 const float* dy, bool accumulate, float* dx) {
  const CpuKernel kernel(stream);
  ForEachRow(s, [&](auto, auto sb, int64_t, int64_t a, int64_t b) {
    Emit(s.inner, accumulate, dx + a,
         [&](int64_t i) { return dy[b + i * sb] * scale; });
  });
}

template <typename F>
void Forward(Stream& stream, const Broadcast& s, const float* x, float* y) {
  const CpuKernel kernel(stream);
  std::fill_n(y, s.b_count, 0.0f);
  AddUpGradient(s, Side::kB, y,
                [x](int64_t, int64_t a, int64_t) { return F::Term(x[a]); });
  Emit(s.b_count, /*accumulate=*/false, y,
       [=](int64_t i) { return F::Result(y[i]); });
}

template <typename F>
void Backward(Stream& stream, const Broadcast& s, const float* x,
              const float* y, const float* dy, bool accumulate, float* dx) {
  const CpuKernel kernel(stream);
  ForEachRow(s, [&](auto, auto sb, int64_t, int64_t a, int64_t b) {
    Emit(s.inner, accumulate, dx + a, [&](int64_t i) {
      return dy[b + i * sb] * F::Derivative(x[a + i], y[b + i * sb]);
    });
  });
}

void LogSumExp(Stream& stream, const Broadcast& s, const float* x, float* sums,
               float* y) {
  const CpuKernel kernel(stream);
  std::fill_n(y, s.b_count, -kInfinity);
  ForEachRow(s, [&](auto, auto sb, int64_t, int64_t a, int64_t b) {
    for (int64_t i = 0; i < s.inner; ++i) {
      float& most = y[b + i * sb];
      most = x[a + i] > most ? x[a + i] : most;
    }
  });
  Emit(s.b_count, /*accumulate=*/false, y,
       [=](int64_t i) { return std::isfinite(y[i]) ? y[i] : 0.0f; });
  std::fill_n(sums, s.b_count, 0.0f);
  AddUpGradient(s, Side::kB, sums, [x, y](int64_t, int64_t a, int64_t b) {
    return Exp(x[a] - y[b]);
  });
  Emit(s.b_count, /*accumulate=*/true, y,
       [=](int64_t i) { return std::log(sums[i]); });
}

void LogSumExpBackward(Stream& stream, const Broadcast& s, const float* x,
                       const float* y, const float* dy, bool accumulate,
                       float* dx) {
  const CpuKernel kernel(stream);
  ForEachRow(s, [&](auto, auto sb, int64_t, int64_t a, int64_t b) {
    Emit(s.inner, accumulate, dx + a, [&](int64_t i) {
      const float of = y[b + i * sb];
      return of == -kInfinity ? 0.0f : dy[b + i * sb] * Exp(x[a + i] - of);
    });
  });
}

void Product(Stream& stream, const Broadcast& s, const float* x,
             double* products, double* zeros, float* y) {
  const CpuKernel kernel(stream);
  std::fill_n(products, s.b_count, 1.0);
  std::fill_n(zeros, s.b_count, 0.0);
  ForEachRow(s, [&](auto, auto sb, int64_t, int64_t a, int64_t b) {
    for (int64_t i = 0; i < s.inner; ++i) {
      const bool zero = x[a + i] == 0;
      products[b + i * sb] *= zero ? 1.0 : x[a + i];
      zeros[b + i * sb] += zero ? 1.0 : 0.0;
    }
  });
  Emit(s.b_count, /*accumulate=*/false, y, [=](int64_t i) {
    return zeros[i] > 0 ? 0.0f : static_cast<float>(products[i]);
  });
}

void ProductBackward(Stream& stream, const Broadcast& s, const float* x,
                     const double* products, const double* zeros,
                     const float* dy, bool accumulate, float* dx) {
  const CpuKernel kernel(stream);
  const auto others = [&](float factor, int64_t b) {
    if (factor == 0) return zeros[b] > 1 ? 0.0 : products[b];
    return zeros[b] > 0 ? 0.0 : products[b] / factor;
  };
  ForEachRow(s, [&](auto, auto sb, int64_t, int64_t a, int64_t b) {
    Emit(s.inner, accumulate, dx + a, [&](int64_t i) {
      return dy[b + i * sb] * static_cast<float>(others(x[a + i], b + i * sb));
    });
  });
}

}  // namespace

const ReductionKernels& CpuReductionKernels() {
  static constexpr ReductionKernels kKernels = {
      .sum = OnFloat32<Sum>,
      .sum_backward = OnFloat32<SumBackward>,
      .functions = {{
#define SYNCLINE_KERNELS_OF(name) \
  {OnFloat32<Forward<reduction::name>>, OnFloat32<Backward<reduction::name>>},
          SYNCLINE_REDUCTION_FUNCTIONS(SYNCLINE_KERNELS_OF)
#undef SYNCLINE_KERNELS_OF
      }},
      .log_sum_exp = OnFloat32<LogSumExp>,
      .log_sum_exp_backward = OnFloat32<LogSumExpBackward>,
      .product = OnFloat32<Product>,
      .product_backward = OnFloat32<ProductBackward>};
  return kKernels;
}

}  // namespace syncline
