#include "kernels/normalization.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "kernels/elementwise/loop.h"
#include "kernels/elementwise/row_sums.h"

namespace syncline {
namespace {

// Calls plane(offset, statistic, parameter) for each plane in order.
template <typename Plane>
void ForEachPlane(const NormalizationShape& s, Plane plane) {
  for (int64_t n = 0; n < s.batch; ++n) {
    int64_t offset = n * s.stride();
    for (int64_t c = 0; c < s.channels; ++c, offset += s.plane) {
      plane(offset, s.StatisticOf(n, c), c / s.channels_per_parameter);
    }
  }
}

// Calls tile(offset, channel, n) for each sample's planes of a block's
// channels, [plane, block], in order; `channel` is the first of them and n the
// sample.
template <typename Tile>
void ForEachTile(const NormalizationShape& s, Tile tile) {
  for (int64_t n = 0; n < s.batch; ++n) {
    int64_t offset = n * s.stride();
    for (int64_t c = 0; c < s.channels; c += s.block) {
      tile(offset, c, n);
      offset += s.plane * s.block;
    }
  }
}

// Calls run with the block as an integral constant, so that loops over it are
// vectorised.
template <typename Run>
void WithBlock(const NormalizationShape& s, Run run) {
  if (s.block == 16) return run(std::integral_constant<int64_t, 16>());
  run(std::integral_constant<int64_t, 8>());
}

// out[i] = value(i, j) over a tile, or +=.
template <int64_t kBlock, typename Value>
void EmitTile(int64_t plane, bool accumulate, float* out, Value value) {
  for (int64_t i = 0; i < plane * kBlock; i += kBlock) {
    Emit(kBlock, accumulate, out + i,
         [=](int64_t j) { return value(i + j, j); });
  }
}

// Channels of a matrix [batch, channels]: planes of one element, of which rows
// are neighbours, so loops go along rows.
bool AreColumns(const NormalizationShape& s) {
  return s.across_batch && s.plane == 1 && s.channels_per_parameter == 1 &&
         s.block == 1;
}

// The mean over the batch of value(x, j) in column begin + j, for kWidth
// columns.
template <int64_t kWidth, typename Value>
void MeansOfColumns(const NormalizationShape& s, const float* x, int64_t begin,
                    Value value, float* means) {
  double sums[kWidth] = {};
  for (int64_t n = 0; n < s.batch; ++n) {
    const float* const row = x + n * s.stride() + begin;
    for (int64_t j = 0; j < kWidth; ++j) sums[j] += value(row[j], j);
  }
  for (int64_t j = 0; j < kWidth; ++j) {
    means[j] = static_cast<float>(sums[j] / s.elements());
  }
}

template <int64_t kWidth>
void MomentsOfColumns(const NormalizationShape& s, const float* x,
                      int64_t begin, float* mean, float* variance) {
  MeansOfColumns<kWidth>(
      s, x, begin, [](float v, int64_t) { return v; }, mean + begin);
  const float* const m = mean + begin;
  MeansOfColumns<kWidth>(
      s, x, begin, [=](float v, int64_t j) { return (v - m[j]) * (v - m[j]); },
      variance + begin);
}

void ColumnMoments(const NormalizationShape& s, const float* x, float* mean,
                   float* variance) {
  constexpr int64_t kLine = 16;  // floats of a cache line
  int64_t c = 0;
  for (; c + kLine <= s.channels; c += kLine) {
    MomentsOfColumns<kLine>(s, x, c, mean, variance);
  }
  for (; c < s.channels; ++c) MomentsOfColumns<1>(s, x, c, mean, variance);
}

// Moments of planes that come one after the other, each group's joined as in
// Chan et al. 1979, in fp64. For at most kGroups groups at once.
template <int64_t kGroups>
class JoinedMoments {
 public:
  // A plane of `elements` with this mean and sum of squared deviations, of
  // group `at`, of which `planes` have come before.
  void Join(int64_t at, int64_t planes, int64_t elements, double mean,
            double squares) {
    const double share = 1.0 / static_cast<double>(planes + 1);
    const double delta = mean - mean_[at];
    mean_[at] += delta * share;
    squares_[at] += squares + delta * delta *
                                  static_cast<double>(elements * planes) *
                                  share;
  }
  // Of `groups` groups with so many elements each.
  void Write(int64_t groups, int64_t elements, float* mean,
             float* variance) const {
    for (int64_t i = 0; i < groups; ++i) {
      mean[i] = static_cast<float>(mean_[i]);
      variance[i] =
          static_cast<float>(squares_[i] / static_cast<double>(elements));
    }
  }

 private:
  double mean_[kGroups] = {};
  double squares_[kGroups] = {};
};

// A plane's sum of squared deviations from `mean`, a float32 near its own.
double SquaresOf(int64_t plane, const float* p, float mean) {
  return SumOf(plane, [=](int64_t i) { return (p[i] - mean) * (p[i] - mean); });
}

// Of planes [batch, channels, plane], each channel a group if they are across
// the batch, else all of them one.
template <typename Moments>
void JoinPlanes(const NormalizationShape& s, const float* x, Moments* moments) {
  const float plane = static_cast<float>(s.plane);
  for (int64_t n = 0; n < s.batch; ++n) {
    const float* p = x + n * s.stride();
    for (int64_t c = 0; c < s.channels; ++c, p += s.plane) {
      const float m = SumOf(s.plane, [=](int64_t i) { return p[i]; }) / plane;
      moments->Join(s.across_batch ? c : 0, s.across_batch ? n : c, s.plane, m,
                    SquaresOf(s.plane, p, m));
    }
  }
}

template <int64_t kBlock, typename Moments>
void JoinTiles(const NormalizationShape& s, const float* x, Moments* moments) {
  const float plane = static_cast<float>(s.plane);
  ForEachTile(s, [&](int64_t offset, int64_t channel, int64_t n) {
    const float* const p = x + offset;
    float m[kBlock], squares[kBlock];
    SumTile<kBlock>(
        s.plane, [=](int64_t i, int64_t) { return p[i]; }, m);
    for (float& mean : m) mean /= plane;
    SumTile<kBlock>(
        s.plane,
        [=, &m](int64_t i, int64_t j) { return (p[i] - m[j]) * (p[i] - m[j]); },
        squares);
    for (int64_t j = 0; j < kBlock; ++j) {
      moments->Join(channel + j, n, s.plane, m[j], squares[j]);
    }
  });
}

// Of channels across the batch, so many at a time as are joined at once: each
// plane's while it is in the cache.
void MomentsAcrossBatch(const NormalizationShape& s, const float* x,
                        float* mean, float* variance) {
  constexpr int64_t kGroups = 64;
  for (int64_t c = 0; c < s.channels; c += kGroups) {
    const int64_t end = std::min(s.channels, c + kGroups);
    NormalizationShape part = s;
    part.channels = end - c;
    part.all_channels = s.all_channels > 0 ? s.all_channels : s.channels;
    const float* const from = x + c * s.plane;
    JoinedMoments<kGroups> moments;
    if (s.block > 1) {
      WithBlock(s,
                [&](auto block) { JoinTiles<block()>(part, from, &moments); });
    } else {
      JoinPlanes(part, from, &moments);
    }
    moments.Write(part.channels, s.elements(), mean + c, variance + c);
  }
}

// Of groups of neighbouring planes.
void MomentsOfGroups(const NormalizationShape& s, const float* x, float* mean,
                     float* variance) {
  NormalizationShape group = s;
  group.batch = 1;
  group.channels = s.group;
  for (int64_t i = 0; i < s.statistic_count(); ++i) {
    JoinedMoments<1> moments;
    JoinPlanes(group, x + i * s.group * s.plane, &moments);
    moments.Write(1, s.elements(), mean + i, variance + i);
  }
}

template <int64_t kBlock>
void NormalizeTiles(const NormalizationShape& s, const float* x,
                    const float* mean, const float* inverse, const float* scale,
                    const float* bias, float* y) {
  ForEachTile(s, [&](int64_t offset, int64_t channel, int64_t) {
    float m[kBlock], factor[kBlock], b[kBlock];
    for (int64_t j = 0; j < kBlock; ++j) {
      m[j] = mean[channel + j];
      factor[j] = inverse[channel + j] * scale[channel + j];
      b[j] = bias[channel + j];
    }
    const float* const p = x + offset;
    EmitTile<kBlock>(s.plane, /*accumulate=*/false, y + offset,
                     [=, &m, &factor, &b](int64_t i, int64_t j) {
                       return (p[i] - m[j]) * factor[j] + b[j];
                     });
  });
}

}  // namespace

void PlaneMoments(const NormalizationShape& s, const float* x, float* mean,
                  float* variance) {
  if (AreColumns(s)) return ColumnMoments(s, x, mean, variance);
  s.across_batch ? MomentsAcrossBatch(s, x, mean, variance)
                 : MomentsOfGroups(s, x, mean, variance);
}

void InverseDeviation(int64_t count, float epsilon, const float* variance,
                      float* inverse) {
  for (int64_t i = 0; i < count; ++i) {
    inverse[i] = 1.0f / std::sqrt(variance[i] + epsilon);
  }
}

void NormalizePlanes(const NormalizationShape& s, const float* x,
                     const float* mean, const float* inverse,
                     const float* scale, const float* bias, float* y) {
  if (s.block > 1) {
    return WithBlock(s, [&](auto block) {
      NormalizeTiles<block()>(s, x, mean, inverse, scale, bias, y);
    });
  }
  if (AreColumns(s)) {
    for (int64_t n = 0; n < s.batch; ++n) {
      const float* const p = x + n * s.stride();
      Emit(s.channels, /*accumulate=*/false, y + n * s.stride(),
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
  Sums(const NormalizationShape& s, double* at)
      : of_dy(at),
        of_dy_x(of_dy + Count(s, s.statistic_count())),
        bias(of_dy_x + Count(s, s.statistic_count())),
        scale(bias + Count(s, s.parameter_count())) {}
  void Clear(const NormalizationShape& s) const {
    for (double* const by_statistic : {of_dy, of_dy_x}) {
      std::fill_n(by_statistic, s.statistic_count(), 0.0);
    }
    for (double* const by_parameter : {bias, scale}) {
      std::fill_n(by_parameter, s.parameter_count(), 0.0);
    }
  }
  // Of the whole shape, where `own` are a part's.
  static int64_t Count(const NormalizationShape& s, int64_t own) {
    return s.all_channels > 0 ? s.all_channels : own;
  }
  double* of_dy;
  double* of_dy_x;
  double* bias;
  double* scale;
};

void AddUp(const NormalizationShape& s, const NormalizationGradient& g,
           const Sums& sums) {
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

void AddUpColumns(const NormalizationShape& s, const NormalizationGradient& g,
                  const Sums& sums) {
  double* const __restrict of_dy = sums.bias;
  double* const __restrict of_dy_x = sums.scale;
  for (int64_t n = 0; n < s.batch; ++n) {
    const float* const x = g.x + n * s.stride();
    const float* const dy = g.dy + n * s.stride();
    for (int64_t c = 0; c < s.channels; ++c) {
      of_dy[c] += dy[c];
      of_dy_x[c] += dy[c] * (x[c] - g.mean[c]);
    }
  }
}

template <int64_t kBlock>
void AddUpTiles(const NormalizationShape& s, const NormalizationGradient& g,
                const Sums& sums) {
  ForEachTile(s, [&](int64_t offset, int64_t channel, int64_t) {
    const float* const x = g.x + offset;
    const float* const dy = g.dy + offset;
    float m[kBlock], of_dy[kBlock], of_dy_x[kBlock];
    std::copy_n(g.mean + channel, kBlock, m);
    SumTile<kBlock>(
        s.plane, [=](int64_t i, int64_t) { return dy[i]; }, of_dy);
    SumTile<kBlock>(
        s.plane,
        [=, &m](int64_t i, int64_t j) { return dy[i] * (x[i] - m[j]); },
        of_dy_x);
    for (int64_t j = 0; j < kBlock; ++j) {
      sums.bias[channel + j] += of_dy[j];
      sums.scale[channel + j] += of_dy_x[j];
    }
  });
}

// From sums of dy and of dy * (x - mean) by channel, which is a parameter's, to
// what Sums says.
void FinishChannelSums(const NormalizationShape& s,
                       const NormalizationGradient& g, const Sums& sums) {
  for (int64_t c = 0; c < s.channels; ++c) {
    sums.scale[c] *= g.inverse[c];
    sums.of_dy[c] = sums.bias[c] * g.scale[c];
    sums.of_dy_x[c] = sums.scale[c] * g.scale[c];
  }
}

void Write(int64_t count, const double* sums, bool accumulate, float* out) {
  if (out == nullptr) return;
  Emit(count, accumulate, out,
       [=](int64_t i) { return static_cast<float>(sums[i]); });
}

// dx = inverse * (scale * dy - mean of that - x^ * mean of that * x^)
void WritePlanes(const NormalizationShape& s, const NormalizationGradient& g,
                 const Sums& sums, double share) {
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

// Leaves in `sums` what a channel's dy * inverse * scale is lessened by: a
// constant, and (x - mean) times a slope.
void MakeSlopes(const NormalizationShape& s, const NormalizationGradient& g,
                const Sums& sums, double share) {
  for (int64_t c = 0; c < s.channels; ++c) {
    const double inverse = g.inverse[c];
    sums.of_dy[c] *= inverse * share;
    sums.of_dy_x[c] *= inverse * inverse * share;
  }
}

void WriteColumns(const NormalizationShape& s, const NormalizationGradient& g,
                  const Sums& sums) {
  const double* const constant = sums.of_dy;
  const double* const slope = sums.of_dy_x;
  const float* const m = g.mean;
  const float* const scale = g.scale;
  const float* const inverse = g.inverse;
  for (int64_t n = 0; n < s.batch; ++n) {
    const float* const x = g.x + n * s.stride();
    const float* const dy = g.dy + n * s.stride();
    Emit(s.channels, g.accumulate_x, g.dx + n * s.stride(), [=](int64_t c) {
      return dy[c] * (inverse[c] * scale[c]) - static_cast<float>(constant[c]) -
             (x[c] - m[c]) * static_cast<float>(slope[c]);
    });
  }
}

template <int64_t kBlock>
void WriteTiles(const NormalizationShape& s, const NormalizationGradient& g,
                const Sums& sums) {
  ForEachTile(s, [&](int64_t offset, int64_t channel, int64_t) {
    float m[kBlock], factor[kBlock], constant[kBlock], slope[kBlock];
    for (int64_t j = 0; j < kBlock; ++j) {
      const int64_t c = channel + j;
      m[j] = g.mean[c];
      factor[j] = g.inverse[c] * g.scale[c];
      constant[j] = static_cast<float>(sums.of_dy[c]);
      slope[j] = static_cast<float>(sums.of_dy_x[c]);
    }
    const float* const x = g.x + offset;
    const float* const dy = g.dy + offset;
    EmitTile<kBlock>(s.plane, g.accumulate_x, g.dx + offset,
                     [=, &m, &factor, &constant, &slope](int64_t i, int64_t j) {
                       return dy[i] * factor[j] - constant[j] -
                              (x[i] - m[j]) * slope[j];
                     });
  });
}

bool AreByChannel(const NormalizationShape& s) {
  return s.block > 1 || AreColumns(s);
}

// The sums by channel, and dx by them: what is neither is by plane.
void AddUpChannels(const NormalizationShape& s, const NormalizationGradient& g,
                   const Sums& sums) {
  if (s.block > 1) {
    WithBlock(s, [&](auto block) { AddUpTiles<block()>(s, g, sums); });
  } else {
    AddUpColumns(s, g, sums);
  }
  FinishChannelSums(s, g, sums);
}

void WriteChannels(const NormalizationShape& s, const NormalizationGradient& g,
                   const Sums& sums, double share) {
  MakeSlopes(s, g, sums, share);
  if (s.block > 1) {
    WithBlock(s, [&](auto block) { WriteTiles<block()>(s, g, sums); });
  } else {
    WriteColumns(s, g, sums);
  }
}

}  // namespace

void SumPlanesGradient(const NormalizationShape& s,
                       const NormalizationGradient& g) {
  const Sums sums(s, g.sums);
  sums.Clear(s);
  const bool needs_sums =
      !g.fixed_statistics || g.dscale != nullptr || g.dbias != nullptr;
  if (needs_sums) {
    AreByChannel(s) ? AddUpChannels(s, g, sums) : AddUp(s, g, sums);
  }
  Write(s.parameter_count(), sums.bias, g.accumulate_bias, g.dbias);
  Write(s.parameter_count(), sums.scale, g.accumulate_scale, g.dscale);
}

void WritePlanesGradient(const NormalizationShape& s,
                         const NormalizationGradient& g, double elements) {
  if (g.dx == nullptr) return;
  const Sums sums(s, g.sums);
  const double share = g.fixed_statistics ? 0 : 1.0 / elements;
  AreByChannel(s) ? WriteChannels(s, g, sums, share)
                  : WritePlanes(s, g, sums, share);
}

void NormalizePlanesGradient(const NormalizationShape& s,
                             const NormalizationGradient& g) {
  SumPlanesGradient(s, g);
  WritePlanesGradient(s, g, static_cast<double>(s.elements()));
}

}  // namespace syncline
