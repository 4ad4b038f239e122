#include "kernels/normalization.h"

#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/device/normalization_kernels.h"
#include "kernels/elementwise/loop.h"
#include "kernels/threads.h"

namespace syncline {
namespace {

// Calls run(part, first channel) for what each thread has. Channels whose
// statistics are across the batch have nothing to do with each other, so the
// bits do not depend on the cut. Groups of a sample are all one thread's.
template <typename Run>
void ForChannels(const NormalizationShape& s, Run run) {
  if (!s.across_batch) return run(s, 0);
  ParallelForRows(s.channels / s.block, s.elements() * s.block,
                  [&](int64_t begin, int64_t end) {
                    const int64_t first = begin * s.block;
                    run(s.Channels(first, end * s.block), first);
                  });
}

// That of the channels from `first` on.
NormalizationGradient OfChannels(const DeviceNormalizationGradient& g,
                                 const NormalizationShape& s, int64_t first) {
  const auto moved = [](float* array, int64_t offset) {
    return array == nullptr ? nullptr : array + offset;
  };
  const int64_t offset = first * s.plane;
  return {.x = g.x + offset,
          .dy = g.dy + offset,
          .mean = g.mean + first,
          .inverse = g.inverse + first,
          .scale = g.scale + first,
          .fixed_statistics = g.fixed_statistics,
          .dx = moved(g.dx, offset),
          .accumulate_x = g.accumulate_x,
          .dscale = moved(g.dscale, first),
          .accumulate_scale = g.accumulate_scale,
          .dbias = moved(g.dbias, first),
          .accumulate_bias = g.accumulate_bias,
          .sums = g.sums + first};
}

void Moments(Stream& stream, const NormalizationShape& s, ConstFloats x,
             float* mean, float* variance) {
  const CpuKernel kernel(stream);
  ForChannels(s, [&](const NormalizationShape& part, int64_t c) {
    PlaneMoments(part, x + c * s.plane, mean + c, variance + c);
  });
}

void Inverse(Stream& stream, int64_t count, float epsilon,
             const float* variance, float* inverse) {
  const CpuKernel kernel(stream);
  InverseDeviation(count, epsilon, variance, inverse);
}

void Forward(Stream& stream, const NormalizationShape& s, ConstFloats x,
             const float* mean, const float* inverse, const float* scale,
             const float* bias, Floats y) {
  const CpuKernel kernel(stream);
  ForChannels(s, [&](const NormalizationShape& part, int64_t c) {
    const int64_t offset = c * s.plane;
    NormalizePlanes(part, x + offset, mean + c, inverse + c, scale + c,
                    bias + c, y + offset);
  });
}

void SumGradient(Stream& stream, const NormalizationShape& s,
                 const DeviceNormalizationGradient& g) {
  const CpuKernel kernel(stream);
  ForChannels(s, [&](const NormalizationShape& part, int64_t c) {
    SumPlanesGradient(part, OfChannels(g, s, c));
  });
}

void WriteGradient(Stream& stream, const NormalizationShape& s,
                   const DeviceNormalizationGradient& g, double elements) {
  const CpuKernel kernel(stream);
  ForChannels(s, [&](const NormalizationShape& part, int64_t c) {
    WritePlanesGradient(part, OfChannels(g, s, c), elements);
  });
}

void AverageIn(Stream& stream, int64_t count, float momentum, float factor,
               const float* running, const float* batch, float* next) {
  const CpuKernel kernel(stream);
  const float rest = 1 - momentum;
  Emit(count, /*accumulate=*/false, next, [=](int64_t c) {
    return momentum * running[c] + rest * (batch[c] * factor);
  });
}

void Multiply(Stream& stream, int64_t count, float factor, const float* x,
              bool accumulate, float* y) {
  const CpuKernel kernel(stream);
  Emit(count, accumulate, y, [=](int64_t i) { return x[i] * factor; });
}

}  // namespace

const NormalizationKernels& CpuNormalizationKernels() {
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
