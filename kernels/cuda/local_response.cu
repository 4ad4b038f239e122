#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/launch.h"
#include "kernels/device/local_response_kernels.h"
#include "kernels/elementwise/inverse_power.h"
#include "kernels/local_response.h"

namespace syncline {
namespace {

using cuda::Global;
using cuda::OnDevice;

int64_t ElementsOf(const LocalResponse& s) {
  return s.batch * s.channels * s.plane;
}

// The channels [c - before, c + after] of a sample, as far as there are.
struct Neighbours {
  int64_t channels;
  int64_t plane;
  int64_t before;
  int64_t after;

  // Calls each(at) for the elements at the place of element i in the channels
  // around its own.
  template <typename Each>
  SYNCLINE_DEVICE void Of(int64_t i, Each each) const {
    const int64_t c = i / plane % channels;
    const int64_t first = c < before ? 0 : c - before;
    const int64_t last = c + after < channels ? c + after : channels - 1;
    for (int64_t n = first; n <= last; ++n) each(i + (n - c) * plane);
  }
};

struct SumSquares {
  Neighbours neighbours;
  float bias;
  float factor;
  Global<const float> x;
  Global<float> scale;

  SYNCLINE_DEVICE void operator()(int64_t i) const {
    float sum = bias;
    neighbours.Of(i, [&](int64_t at) {
      const float value = x[at];
      sum += factor * (value * value);
    });
    scale[i] = sum;
  }
};

template <typename Power>
struct Scale {
  Power power;
  Global<const float> x;
  Global<const float> scale;
  Global<float> y;

  SYNCLINE_DEVICE void operator()(int64_t i) const {
    y[i] = x[i] * power(scale[i]);
  }
};

void Forward(Stream& stream, const LocalResponse& s, const float* x,
             float* scale, float* y) {
  const float factor = s.alpha / static_cast<float>(s.size);
  cuda::LaunchElements(stream, ElementsOf(s),
                       SumSquares{{s.channels, s.plane, s.before(), s.after()},
                                  s.bias,
                                  factor,
                                  OnDevice(x),
                                  OnDevice(scale)});
  const float* const scales = scale;
  // y may lie over x.
  WithInversePower(s.beta, [&](auto power) {
    cuda::LaunchElements(stream, ElementsOf(s),
                         Scale<decltype(power)>{power, OnDevice(x),
                                                OnDevice(scales), OnDevice(y)});
  });
}

template <typename Power>
struct Ratios {
  float factor;
  bool accumulate;
  Power power;
  Global<const float> x;
  Global<const float> scale;
  Global<const float> dy;
  Global<float> ratio;
  Global<float> dx;

  SYNCLINE_DEVICE void operator()(int64_t i) const {
    const float s = scale[i];
    const float d = dy[i];
    const float by = power(s);
    ratio[i] = factor * (d * x[i] * by / s);
    dx[i] = accumulate ? dx[i] + d * by : d * by;
  }
};

struct AddRatios {
  Neighbours neighbours;
  Global<const float> x;
  Global<const float> ratio;
  Global<float> dx;

  SYNCLINE_DEVICE void operator()(int64_t i) const {
    const float own = x[i];
    float sum = dx[i];
    neighbours.Of(i, [&](int64_t at) { sum += own * ratio[at]; });
    dx[i] = sum;
  }
};

void Backward(Stream& stream, const LocalResponse& s, const float* x,
              const float* scale, const float* dy, bool accumulate,
              float* ratio, float* dx) {
  const float factor = -2.0f * s.beta * s.alpha / static_cast<float>(s.size);
  WithInversePower(s.beta, [&](auto power) {
    cuda::LaunchElements(
        stream, ElementsOf(s),
        Ratios<decltype(power)>{factor, accumulate, power, OnDevice(x),
                                OnDevice(scale), OnDevice(dy), OnDevice(ratio),
                                OnDevice(dx)});
  });
  const float* const ratios = ratio;
  // x is in the window of a channel that is up to `after` before it.
  cuda::LaunchElements(stream, ElementsOf(s),
                       AddRatios{{s.channels, s.plane, s.after(), s.before()},
                                 OnDevice(x),
                                 OnDevice(ratios),
                                 OnDevice(dx)});
}

}  // namespace

const LocalResponseKernels& CudaLocalResponseKernels() {
  static constexpr LocalResponseKernels kKernels = {.forward = Forward,
                                                    .backward = Backward};
  return kKernels;
}

}  // namespace syncline
