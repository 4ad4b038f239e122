#include "kernels/plane_norm.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/loop.h"

namespace syncline {
namespace {

// Calls plane(offset, statistic, parameter) for each plane in order.
template <typename Plane>
void ForEachPlane(const PlaneNorm& s, Plane plane) {
  int64_t offset = 0;
  for (int64_t n = 0; n < s.batch; ++n) {
    for (int64_t c = 0; c < s.channels; ++c, offset += s.plane) {
      plane(offset, s.StatisticOf(n, c), c / s.channels_per_parameter);
    }
  }
}

}  // namespace

// Each plane's moments while it is in the cache, joined as in Chan et al. 1979.
void PlaneMoments(const PlaneNorm& s, const float* x, float* mean,
                  float* variance) {
  const int64_t count = s.statistic_count();
  std::fill_n(mean, count, 0.0f);
  std::fill_n(variance, count, 0.0f);
  // Planes of a group so far; `variance` holds sums of squared deviations.
  const auto join = [&](int64_t offset, int64_t at, int64_t planes) {
    const float* const p = x + offset;
    const float plane = static_cast<float>(s.plane);
    const float m = SumOf(s.plane, [=](int64_t i) { return p[i]; }) / plane;
    const float squares =
        SumOf(s.plane, [=](int64_t i) { return (p[i] - m) * (p[i] - m); });
    const double share = 1.0 / static_cast<double>(planes + 1);
    const double delta = static_cast<double>(m) - mean[at];
    mean[at] = static_cast<float>(mean[at] + delta * share);
    variance[at] = static_cast<float>(
        variance[at] + squares +
        delta * delta * static_cast<double>(s.plane * planes) * share);
  };
  int64_t offset = 0;
  for (int64_t n = 0; n < s.batch; ++n) {
    for (int64_t c = 0; c < s.channels; ++c, offset += s.plane) {
      join(offset, s.StatisticOf(n, c), s.across_batch ? n : c % s.group);
    }
  }
  const double share = 1.0 / static_cast<double>(s.elements());
  for (int64_t i = 0; i < count; ++i) {
    variance[i] = static_cast<float>(variance[i] * share);
  }
}

void InverseDeviation(int64_t count, float epsilon, const float* variance,
                      float* inverse) {
  for (int64_t i = 0; i < count; ++i) {
    inverse[i] = 1.0f / std::sqrt(variance[i] + epsilon);
  }
}

void NormalizePlanes(const PlaneNorm& s, const float* x, const float* mean,
                     const float* inverse, const float* scale,
                     const float* bias, float* y) {
  ForEachPlane(s, [&](int64_t offset, int64_t at, int64_t parameter) {
    const float m = mean[at];
    const float factor = inverse[at] * scale[parameter];
    const float b = bias[parameter];
    const float* const p = x + offset;
    Emit(s.plane, /*accumulate=*/false, y + offset,
         [=](int64_t i) { return (p[i] - m) * factor + b; });
  });
}

namespace {

// Sums over groups of dy * scale and of dy * scale * x^, x^ being the
// normalised x; and over what shares a parameter of dy and of dy * x^.
struct Sums {
  Sums(const PlaneNorm& s, double* at)
      : of_dy(at),
        of_dy_x(of_dy + s.statistic_count()),
        bias(of_dy_x + s.statistic_count()),
        scale(bias + s.parameter_count()) {
    std::fill_n(at, GradientSums(s), 0.0);
  }
  double* of_dy;
  double* of_dy_x;
  double* bias;
  double* scale;
};

void AddUp(const PlaneNorm& s, const PlaneNormGradient& g, const Sums& sums) {
  ForEachPlane(s, [&](int64_t offset, int64_t at, int64_t parameter) {
    const float* const x = g.x + offset;
    const float* const dy = g.dy + offset;
    const float m = g.mean[at];
    const double of_dy = SumOf(s.plane, [=](int64_t i) { return dy[i]; });
    const double of_dy_x =
        SumOf(s.plane, [=](int64_t i) { return dy[i] * (x[i] - m); }) *
        static_cast<double>(g.inverse[at]);
    sums.of_dy[at] += of_dy * g.scale[parameter];
    sums.of_dy_x[at] += of_dy_x * g.scale[parameter];
    sums.bias[parameter] += of_dy;
    sums.scale[parameter] += of_dy_x;
  });
}

void Write(int64_t count, const double* sums, bool accumulate, float* out) {
  if (out == nullptr) return;
  Emit(count, accumulate, out,
       [=](int64_t i) { return static_cast<float>(sums[i]); });
}

}  // namespace

void NormalizePlanesGradient(const PlaneNorm& s, const PlaneNormGradient& g) {
  const Sums sums(s, g.sums);
  const bool needs_sums =
      !g.fixed_statistics || g.dscale != nullptr || g.dbias != nullptr;
  if (needs_sums) AddUp(s, g, sums);
  Write(s.parameter_count(), sums.bias, g.accumulate_bias, g.dbias);
  Write(s.parameter_count(), sums.scale, g.accumulate_scale, g.dscale);
  if (g.dx == nullptr) return;
  const double share = 1.0 / static_cast<double>(s.elements());
  ForEachPlane(s, [&](int64_t offset, int64_t at, int64_t parameter) {
    const float* const x = g.x + offset;
    const float* const dy = g.dy + offset;
    const float factor = g.inverse[at] * g.scale[parameter];
    if (g.fixed_statistics) {
      Emit(s.plane, g.accumulate_x, g.dx + offset,
           [=](int64_t i) { return dy[i] * factor; });
      return;
    }
    // inverse * (scale * dy - mean of that - x^ * mean of that * x^)
    const double inverse = g.inverse[at];
    const float m = g.mean[at];
    const float constant = static_cast<float>(inverse * sums.of_dy[at] * share);
    const float slope =
        static_cast<float>(inverse * inverse * sums.of_dy_x[at] * share);
    Emit(s.plane, g.accumulate_x, g.dx + offset, [=](int64_t i) {
      return dy[i] * factor - constant - (x[i] - m) * slope;
    });
  });
}

}  // namespace syncline
