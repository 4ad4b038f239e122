#ifndef SYNCLINE_KERNELS_DEVICE_NORMALIZATION_KERNELS_H_
#define SYNCLINE_KERNELS_DEVICE_NORMALIZATION_KERNELS_H_

#include <cstdint>

#include "kernels/device/floats.h"
#include "kernels/normalization.h"

namespace syncline {

class Stream;

// A NormalizationGradient (kernels/normalization.h) of arrays of a device: x,
// dy and dx have types.
struct DeviceNormalizationGradient {
  ConstFloats x;
  ConstFloats dy;
  const float* mean;
  const float* inverse;
  const float* scale;
  bool fixed_statistics;
  Floats dx;
  bool accumulate_x;
  float* dscale;
  bool accumulate_scale;
  float* dbias;
  bool accumulate_bias;
  double* sums;
};

// Normalisation of planes. kernels/normalization.h has the formulas, the shapes
// and what may overlap.
struct NormalizationKernels {
  // PlaneMoments
  void (*moments)(Stream& stream, const NormalizationShape& s, ConstFloats x,
                  float* mean, float* variance) = nullptr;
  // InverseDeviation
  void (*inverse_deviation)(Stream& stream, int64_t count, float epsilon,
                            const float* variance, float* inverse) = nullptr;
  // NormalizePlanes
  void (*forward)(Stream& stream, const NormalizationShape& s, ConstFloats x,
                  const float* mean, const float* inverse, const float* scale,
                  const float* bias, Floats y) = nullptr;
  // SumPlanesGradient and WritePlanesGradient: together, the gradient.
  void (*sum_gradient)(Stream& stream, const NormalizationShape& s,
                       const DeviceNormalizationGradient& g) = nullptr;
  void (*write_gradient)(Stream& stream, const NormalizationShape& s,
                         const DeviceNormalizationGradient& g,
                         double elements) = nullptr;

  // Over `count` channels, float32; no overlap.
  //   next = momentum * running + (1 - momentum) * (batch * factor)
  void (*average_in)(Stream& stream, int64_t count, float momentum,
                     float factor, const float* running, const float* batch,
                     float* next) = nullptr;
  //   y = x * factor
  void (*multiply)(Stream& stream, int64_t count, float factor, const float* x,
                   bool accumulate, float* y) = nullptr;
};

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_DEVICE_NORMALIZATION_KERNELS_H_
