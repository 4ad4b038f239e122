#include <cmath>

#include "common/base/check.h"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/float_array.h"
#include "kernels/cuda/walk/lines.h"
#include "kernels/device/normalization_kernels.h"
#include "kernels/normalization.h"

namespace syncline {
namespace {

using cuda::ConstFloatArray;
using cuda::FloatArray;
using cuda::Global;
using cuda::OnDevice;

// Where an element is.
struct Place {
  int64_t at;
  int64_t channel;
  int64_t statistic;
};

// Element k of those that share statistic `line`.
SYNCLINE_DEVICE Place OfStatistic(const NormalizationShape& s, int64_t line,
                                  int64_t k) {
  if (s.across_batch) {
    const int64_t n = k / s.plane;
    return {n * s.channels * s.plane + line * s.plane + k % s.plane, line,
            line};
  }
  const int64_t channel = line % (s.channels / s.group) * s.group + k / s.plane;
  return {line * s.group * s.plane + k, channel, line};
}

// Element k of those that share parameter `line`.
SYNCLINE_DEVICE Place OfParameter(const NormalizationShape& s, int64_t line,
                                  int64_t k) {
  const int64_t each = s.channels_per_parameter * s.plane;  // of a sample
  const int64_t n = k / each;
  const int64_t channel = line * s.channels_per_parameter + k % each / s.plane;
  const int64_t statistic =
      s.across_batch ? channel : n * (s.channels / s.group) + channel / s.group;
  return {(n * s.channels + channel) * s.plane + k % s.plane, channel,
          statistic};
}

SYNCLINE_DEVICE Place OfElement(const NormalizationShape& s, int64_t at) {
  const int64_t channel = at / s.plane % s.channels;
  const int64_t n = at / s.plane / s.channels;
  return {at, channel,
          s.across_batch ? channel
                         : n * (s.channels / s.group) + channel / s.group};
}

// A matrix [batch, channels]: lines are columns.
bool AreColumns(const NormalizationShape& s) {
  return s.across_batch && s.plane == 1;
}

int64_t ElementsOf(const NormalizationShape& s) {
  SYNCLINE_CHECK(s.block == 1 && s.all_channels == 0);  // the CPU's
  return s.batch * s.channels * s.plane;
}

struct MomentsBody {
  NormalizationShape s;
  ConstFloatArray x;
  Global<float> mean;
  Global<float> variance;

  template <typename Group>
  SYNCLINE_DEVICE void operator()(const Group& group, int64_t line,
                                  int64_t n) const {
    double sum = 0;
    for (int64_t k = group.rank(); k < n; k += group.size()) {
      sum += x[OfStatistic(s, line, k).at];
    }
    sum = group.Fold(sum, cuda::Plus());
    const double m = sum / static_cast<double>(n);
    double squares = 0;
    for (int64_t k = group.rank(); k < n; k += group.size()) {
      const double distance = x[OfStatistic(s, line, k).at] - m;
      squares += distance * distance;
    }
    squares = group.Fold(squares, cuda::Plus());
    if (group.rank() != 0 || n == 0) return;
    mean[line] = static_cast<float>(m);
    variance[line] = static_cast<float>(squares / static_cast<double>(n));
  }
};

// Statistics of nothing, as the CPU has them: 0 / 0 is a variance, and a mean
// where there is a plane to take it of; the mean of no planes stays 0.
void MomentsOfNothing(Stream& stream, const NormalizationShape& s, float* mean,
                      float* variance) {
  const bool has_planes =
      AreColumns(s) || (s.across_batch ? s.batch : s.group) > 0;
  cuda::LaunchElements(
      stream, s.statistic_count(),
      [has_planes, mean = OnDevice(mean),
       variance = OnDevice(variance)] SYNCLINE_DEVICE(int64_t i) {
        mean[i] = has_planes ? NAN : 0.0f;
        variance[i] = NAN;
      });
}

void Moments(Stream& stream, const NormalizationShape& s, ConstFloats x,
             float* mean, float* variance) {
  if (ElementsOf(s) == 0) return MomentsOfNothing(stream, s, mean, variance);
  cuda::LaunchLines(
      stream, s.statistic_count(), s.elements(), AreColumns(s),
      MomentsBody{s, OnDevice(x), OnDevice(mean), OnDevice(variance)});
}

void Inverse(Stream& stream, int64_t count, float epsilon,
             const float* variance, float* inverse) {
  cuda::LaunchElements(
      stream, count,
      [epsilon, variance = OnDevice(variance),
       inverse = OnDevice(inverse)] SYNCLINE_DEVICE(int64_t i) {
        inverse[i] = 1.0f / std::sqrt(variance[i] + epsilon);
      });
}

struct Normalize {
  NormalizationShape s;
  ConstFloatArray x;
  Global<const float> mean;
  Global<const float> inverse;
  Global<const float> scale;
  Global<const float> bias;
  FloatArray y;

  SYNCLINE_DEVICE void operator()(int64_t i) const {
    const Place place = OfElement(s, i);
    const int64_t parameter = place.channel / s.channels_per_parameter;
    const float factor = inverse[place.statistic] * scale[parameter];
    y[i] = (x[i] - mean[place.statistic]) * factor + bias[parameter];
  }
};

void Forward(Stream& stream, const NormalizationShape& s, ConstFloats x,
             const float* mean, const float* inverse, const float* scale,
             const float* bias, Floats y) {
  cuda::LaunchElements(
      stream, ElementsOf(s),
      Normalize{s, OnDevice(x), OnDevice(mean), OnDevice(inverse),
                OnDevice(scale), OnDevice(bias), OnDevice(y)});
}

// --- The gradient ------------------------------------------------------------

// The inputs of both sums.
struct GradientInputs {
  NormalizationShape s;
  ConstFloatArray x;
  ConstFloatArray dy;
  Global<const float> mean;
  Global<const float> inverse;
  Global<const float> scale;

  SYNCLINE_DEVICE float Normalized(const Place& place) const {
    return (x[place.at] - mean[place.statistic]) * inverse[place.statistic];
  }
};

GradientInputs InputsOf(const NormalizationShape& s,
                        const DeviceNormalizationGradient& g) {
  return {s,
          OnDevice(g.x),
          OnDevice(g.dy),
          OnDevice(g.mean),
          OnDevice(g.inverse),
          OnDevice(g.scale)};
}

// By statistic: dy * scale, and that times the normalised x.
struct StatisticsBody {
  GradientInputs in;
  Global<double> of_dy;
  Global<double> of_dy_x;

  template <typename Group>
  SYNCLINE_DEVICE void operator()(const Group& group, int64_t line,
                                  int64_t n) const {
    double sum = 0;
    double sum_x = 0;
    for (int64_t k = group.rank(); k < n; k += group.size()) {
      const Place place = OfStatistic(in.s, line, k);
      const double d =
          static_cast<double>(static_cast<float>(in.dy[place.at])) *
          in.scale[place.channel / in.s.channels_per_parameter];
      sum += d;
      sum_x += d * in.Normalized(place);
    }
    sum = group.Fold(sum, cuda::Plus());
    sum_x = group.Fold(sum_x, cuda::Plus());
    if (group.rank() != 0 || n == 0) return;
    of_dy[line] = sum;
    of_dy_x[line] = sum_x;
  }
};

// By parameter: dy, and that times the normalised x.
struct ParametersBody {
  GradientInputs in;
  int64_t parameters;
  bool wants_scale;
  bool wants_bias;
  bool add_scale;
  bool add_bias;
  Global<float> dscale;
  Global<float> dbias;

  template <typename Group>
  SYNCLINE_DEVICE void operator()(const Group& group, int64_t line,
                                  int64_t n) const {
    double of_bias = 0;
    double of_scale = 0;
    for (int64_t k = group.rank(); k < n; k += group.size()) {
      const Place place = OfParameter(in.s, line, k);
      const float d = in.dy[place.at];
      of_bias += d;
      if (wants_scale) {
        of_scale += static_cast<double>(d) * in.Normalized(place);
      }
    }
    of_bias = group.Fold(of_bias, cuda::Plus());
    of_scale = group.Fold(of_scale, cuda::Plus());
    if (group.rank() != 0 || line >= parameters) return;
    if (wants_scale) {
      const float sum = static_cast<float>(of_scale);
      dscale[line] = add_scale ? dscale[line] + sum : sum;
    }
    if (wants_bias) {
      const float sum = static_cast<float>(of_bias);
      dbias[line] = add_bias ? dbias[line] + sum : sum;
    }
  }
};

void SumGradient(Stream& stream, const NormalizationShape& s,
                 const DeviceNormalizationGradient& g) {
  if (!g.fixed_statistics && ElementsOf(s) == 0) {
    // Other members may have elements: theirs are added to these.
    cuda::LaunchElements(
        stream, 2 * s.statistic_count(),
        [sums = OnDevice(g.sums)] SYNCLINE_DEVICE(int64_t i) { sums[i] = 0; });
  } else if (!g.fixed_statistics) {
    cuda::LaunchLines(stream, s.statistic_count(), s.elements(), AreColumns(s),
                      StatisticsBody{InputsOf(s, g), OnDevice(g.sums),
                                     OnDevice(g.sums + s.statistic_count())});
  }
  if (g.dscale == nullptr && g.dbias == nullptr) return;
  cuda::LaunchLines(
      stream, s.parameter_count(), s.batch * s.channels_per_parameter * s.plane,
      s.channels_per_parameter * s.plane == 1,
      ParametersBody{InputsOf(s, g), s.parameter_count(), g.dscale != nullptr,
                     g.dbias != nullptr, g.accumulate_scale, g.accumulate_bias,
                     OnDevice(g.dscale), OnDevice(g.dbias)});
}

// dx = inverse * (scale * dy - mean of that - x^ * mean of that * x^)
struct WriteInput {
  GradientInputs in;
  bool fixed_statistics;
  bool accumulate;
  double share;
  Global<const double> of_dy;
  Global<const double> of_dy_x;
  FloatArray dx;

  SYNCLINE_DEVICE void operator()(int64_t i) const {
    const Place place = OfElement(in.s, i);
    const float inv = in.inverse[place.statistic];
    float value = in.dy[i] *
                  (inv * in.scale[place.channel / in.s.channels_per_parameter]);
    if (!fixed_statistics) {
      const double by = inv;
      const float constant =
          static_cast<float>(by * of_dy[place.statistic] * share);
      const float slope =
          static_cast<float>(by * by * of_dy_x[place.statistic] * share);
      value = value - constant - (in.x[i] - in.mean[place.statistic]) * slope;
    }
    dx[i] = accumulate ? dx[i] + value : value;
  }
};

void WriteGradient(Stream& stream, const NormalizationShape& s,
                   const DeviceNormalizationGradient& g, double elements) {
  if (g.dx == nullptr) return;
  const double* const of_dy = g.sums;
  const double* const of_dy_x = g.sums + s.statistic_count();
  cuda::LaunchElements(
      stream, ElementsOf(s),
      WriteInput{InputsOf(s, g), g.fixed_statistics, g.accumulate_x,
                 1.0 / elements, OnDevice(of_dy), OnDevice(of_dy_x),
                 OnDevice(g.dx)});
}

// --- Running statistics ------------------------------------------------------

void AverageIn(Stream& stream, int64_t count, float momentum, float factor,
               const float* running, const float* batch, float* next) {
  const float rest = 1 - momentum;
  cuda::LaunchElements(stream, count,
                       [momentum, rest, factor, running = OnDevice(running),
                        batch = OnDevice(batch),
                        next = OnDevice(next)] SYNCLINE_DEVICE(int64_t c) {
                         next[c] =
                             momentum * running[c] + rest * (batch[c] * factor);
                       });
}

void Multiply(Stream& stream, int64_t count, float factor, const float* x,
              bool accumulate, float* y) {
  cuda::LaunchElements(stream, count,
                       [factor, accumulate, x = OnDevice(x),
                        y = OnDevice(y)] SYNCLINE_DEVICE(int64_t i) {
                         const float value = x[i] * factor;
                         y[i] = accumulate ? y[i] + value : value;
                       });
}

}  // namespace

const NormalizationKernels& CudaNormalizationKernels() {
  static constexpr NormalizationKernels kKernels = {
      .moments = Moments,
      .inverse_deviation = Inverse,
      .forward = Forward,
      .sum_gradient = SumGradient,
      .write_gradient = WriteGradient,
      .average_in = AverageIn,
      .multiply = Multiply};
  return kKernels;
}

}  // namespace syncline
