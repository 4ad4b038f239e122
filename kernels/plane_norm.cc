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

// Channels of a matrix [batch, channels]: planes of one element, of which rows
// are neighbours, so loops go along rows.
bool AreColumns(const PlaneNorm& s) {
  return s.across_batch && s.plane == 1 && s.channels_per_parameter == 1;
}

// The mean over the batch of value(x, j) in column begin + j, for kWidth
// columns.
template <int64_t kWidth, typename Value>
void MeansOfColumns(const PlaneNorm& s, const float* x, int64_t begin,
                    Value value, float* means) {
  double sums[kWidth] = {};
  for (int64_t n = 0; n < s.batch; ++n) {
    const float* const row = x + n * s.channels + begin;
    for (int64_t j = 0; j < kWidth; ++j) sums[j] += value(row[j], j);
  }
  for (int64_t j = 0; j < kWidth; ++j) {
    means[j] = static_cast<float>(sums[j] / s.elements());
  }
}

template <int64_t kWidth>
void MomentsOfColumns(const PlaneNorm& s, const float* x, int64_t begin,
                      float* mean, float* variance) {
  MeansOfColumns<kWidth>(
      s, x, begin, [](float v, int64_t) { return v; }, mean + begin);
  const float* const m = mean + begin;
  MeansOfColumns<kWidth>(
      s, x, begin, [=](float v, int64_t j) { return (v - m[j]) * (v - m[j]); },
      variance + begin);
}

void ColumnMoments(const PlaneNorm& s, const float* x, float* mean,
                   float* variance) {
  constexpr int64_t kLine = 16;  // floats of a cache line
  int64_t c = 0;
  for (; c + kLine <= s.channels; c += kLine) {
    MomentsOfColumns<kLine>(s, x, c, mean, variance);
  }
  for (; c < s.channels; ++c) MomentsOfColumns<1>(s, x, c, mean, variance);
}

}  // namespace

// Each plane's moments while it is in the cache, joined as in Chan et al. 1979.
void PlaneMoments(const PlaneNorm& s, const float* x, float* mean,
                  float* variance) {
  if (AreColumns(s)) return ColumnMoments(s, x, mean, variance);
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
  if (AreColumns(s)) {
    for (int64_t n = 0; n < s.batch; ++n) {
      const float* const p = x + n * s.channels;
      Emit(s.channels, /*accumulate=*/false, y + n * s.channels,
           [=](int64_t c) {
             return (p[c] - mean[c]) * (inverse[c] * scale[c]) + bias[c];
           });
    }
    return;
  }
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

void AddUpColumns(const PlaneNorm& s, const PlaneNormGradient& g,
                  const Sums& sums) {
  double* const __restrict of_dy = sums.bias;
  double* const __restrict of_dy_x = sums.scale;
  for (int64_t n = 0; n < s.batch; ++n) {
    const float* const x = g.x + n * s.channels;
    const float* const dy = g.dy + n * s.channels;
    for (int64_t c = 0; c < s.channels; ++c) {
      of_dy[c] += dy[c];
      of_dy_x[c] += dy[c] * (x[c] - g.mean[c]);
    }
  }
  for (int64_t c = 0; c < s.channels; ++c) {
    of_dy_x[c] *= g.inverse[c];
    sums.of_dy[c] = of_dy[c] * g.scale[c];
    sums.of_dy_x[c] = of_dy_x[c] * g.scale[c];
  }
}

void Write(int64_t count, const double* sums, bool accumulate, float* out) {
  if (out == nullptr) return;
  Emit(count, accumulate, out,
       [=](int64_t i) { return static_cast<float>(sums[i]); });
}

// dx = inverse * (scale * dy - mean of that - x^ * mean of that * x^)
void WritePlanes(const PlaneNorm& s, const PlaneNormGradient& g,
                 const Sums& sums) {
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

void WriteColumns(const PlaneNorm& s, const PlaneNormGradient& g,
                  const Sums& sums) {
  double* const constant = sums.of_dy;
  double* const slope = sums.of_dy_x;
  const double share = g.fixed_statistics ? 0 : 1.0 / s.elements();
  for (int64_t c = 0; c < s.channels; ++c) {
    const double inverse = g.inverse[c];
    constant[c] *= inverse * share;
    slope[c] *= inverse * inverse * share;
  }
  const float* const m = g.mean;
  const float* const scale = g.scale;
  const float* const inverse = g.inverse;
  for (int64_t n = 0; n < s.batch; ++n) {
    const float* const x = g.x + n * s.channels;
    const float* const dy = g.dy + n * s.channels;
    Emit(s.channels, g.accumulate_x, g.dx + n * s.channels, [=](int64_t c) {
      return dy[c] * (inverse[c] * scale[c]) - static_cast<float>(constant[c]) -
             (x[c] - m[c]) * static_cast<float>(slope[c]);
    });
  }
}

}  // namespace

void NormalizePlanesGradient(const PlaneNorm& s, const PlaneNormGradient& g) {
  const Sums sums(s, g.sums);
  const bool columns = AreColumns(s);
  const bool needs_sums =
      !g.fixed_statistics || g.dscale != nullptr || g.dbias != nullptr;
  if (needs_sums) columns ? AddUpColumns(s, g, sums) : AddUp(s, g, sums);
  Write(s.parameter_count(), sums.bias, g.accumulate_bias, g.dbias);
  Write(s.parameter_count(), sums.scale, g.accumulate_scale, g.dscale);
  if (g.dx == nullptr) return;
  columns ? WriteColumns(s, g, sums) : WritePlanes(s, g, sums);
}

}  // namespace syncline
