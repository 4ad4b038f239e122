#ifndef SYNCLINE_KERNELS_NORMALIZATION_H_
#define SYNCLINE_KERNELS_NORMALIZATION_H_

// Normalisation of planes, as batch, instance and group normalisation have it:
//
//   y = (x - mean) * inverse * scale + bias
//       inverse = 1 / sqrt(variance + epsilon)
//
// where mean and variance are those of a group of planes of x. Sources: Ioffe
// and Szegedy, ICML 2015; Ulyanov et al. 2016; Wu and He, ECCV 2018.
// Thread-compatible.

#include <cstdint>

namespace syncline {

// x and y are [batch, channels, plane], float32, row-major; or, with a block,
// [batch, channels / block, plane, block].
struct NormalizationShape {
  int64_t batch = 0;
  int64_t channels = 0;
  int64_t plane = 0;
  // Which planes share a mean and a variance: those of a channel, across the
  // batch; or those of a sample's `group` neighbouring channels.
  bool across_batch = false;
  int64_t group = 1;  // divides channels; 1 if across_batch
  // How many neighbouring channels share an element of scale and bias.
  int64_t channels_per_parameter = 1;
  // Channels that are innermost: 8 or 16, which divide `channels`, where
  // statistics are across the batch and parameters of one channel; else 1.
  int64_t block = 1;
  // Of those in memory `channels` are a part; 0: they are all.
  int64_t all_channels = 0;

  // Channels [begin, end) of a shape whose statistics are across the batch;
  // multiples of `block`. Arrays of elements then begin begin * plane later,
  // those by channel, NormalizationGradient::sums among them, `begin`.
  NormalizationShape Channels(int64_t begin, int64_t end) const {
    NormalizationShape part = *this;
    part.channels = end - begin;
    part.all_channels = channels;
    return part;
  }
  // Elements from one sample to the next.
  int64_t stride() const {
    return (all_channels > 0 ? all_channels : channels) * plane;
  }
  int64_t statistic_count() const {
    return across_batch ? channels : batch * (channels / group);
  }
  int64_t parameter_count() const { return channels / channels_per_parameter; }
  // Elements that each mean is of.
  int64_t elements() const { return (across_batch ? batch : group) * plane; }
  int64_t StatisticOf(int64_t sample, int64_t channel) const {
    return across_batch ? channel
                        : sample * (channels / group) + channel / group;
  }
};

// Mean and (population) variance of each group, [statistic_count], in one pass
// over x.
void PlaneMoments(const NormalizationShape& shape, const float* x, float* mean,
                  float* variance);

// inverse = 1 / sqrt(variance + epsilon), over `count` elements; may be in
// place.
void InverseDeviation(int64_t count, float epsilon, const float* variance,
                      float* inverse);

// y as above. mean and inverse are [statistic_count], scale and bias
// [parameter_count]. y may be x.
void NormalizePlanes(const NormalizationShape& shape, const float* x,
                     const float* mean, const float* inverse,
                     const float* scale, const float* bias, float* y);

struct NormalizationGradient {
  const float* x;
  const float* dy;
  const float* mean;
  const float* inverse;
  const float* scale;
  // mean and inverse do not depend on x.
  bool fixed_statistics;
  // Null: not wanted. Each overwritten, or added to. dx may be dy.
  float* dx;
  bool accumulate_x;
  float* dscale;
  bool accumulate_scale;
  float* dbias;
  bool accumulate_bias;
  // [2 * (statistic_count + parameter_count)], of the whole shape; contents do
  // not matter.
  double* sums;
};
void NormalizePlanesGradient(const NormalizationShape& shape,
                             const NormalizationGradient& g);
// Its halves, for means that are of more than this x. The first writes dscale,
// dbias and `sums`, of which the first 2 * statistic_count are, by statistic,
// of dy * scale and then of dy * scale * normalised x; the second, from these,
// dx. `elements`: that each mean is of.
void SumPlanesGradient(const NormalizationShape& shape,
                       const NormalizationGradient& g);
void WritePlanesGradient(const NormalizationShape& shape,
                         const NormalizationGradient& g, double elements);
// Elements of NormalizationGradient::sums.
inline int64_t GradientSums(const NormalizationShape& shape) {
  return 2 * (shape.statistic_count() + shape.parameter_count());
}

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_NORMALIZATION_H_
