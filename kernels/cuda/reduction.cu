#include <cmath>

#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/walk/broadcast_walk.h"
#include "kernels/device/reduction_kernels.h"

namespace syncline {
namespace {

using cuda::BroadcastPlace;
using cuda::FloatArray;
using cuda::OnDevice;

// dx = value(place), or +=. Each element of the input is one of the walk.
template <typename Value>
struct GradientKernel {
  bool accumulate;
  Value value;
  FloatArray dx;

  SYNCLINE_DEVICE void operator()(const BroadcastPlace& at) const {
    const float d = value(at);
    dx[at.a] = accumulate ? dx[at.a] + d : d;
  }
};

template <typename Value>
void LaunchGradient(Stream& stream, const Broadcast& s, bool accumulate,
                    const Value& value, Floats dx) {
  cuda::LaunchBroadcast(stream, s,
                        GradientKernel<Value>{accumulate, value, OnDevice(dx)});
}

void Sum(Stream& stream, const Broadcast& s, float scale, ConstFloats x,
         Floats y) {
  cuda::FoldRepeated(
      stream, s, Side::kB, 0.0,
      [x = OnDevice(x)] SYNCLINE_DEVICE(const BroadcastPlace& at) -> double {
        return x[at.a];
      },
      cuda::Plus(),
      [scale, y = OnDevice(y)] SYNCLINE_DEVICE(int64_t i, double sum) {
        y[i] = scale * static_cast<float>(sum);
      });
}

void SumBackward(Stream& stream, const Broadcast& s, float scale,
                 ConstFloats dy, bool accumulate, Floats dx) {
  LaunchGradient(
      stream, s, accumulate,
      [scale, dy = OnDevice(dy)] SYNCLINE_DEVICE(
          const BroadcastPlace& at) -> float { return dy[at.b] * scale; },
      dx);
}

template <typename F>
void Forward(Stream& stream, const Broadcast& s, ConstFloats x, Floats y) {
  cuda::FoldRepeated(
      stream, s, Side::kB, 0.0,
      [x = OnDevice(x)] SYNCLINE_DEVICE(const BroadcastPlace& at) -> double {
        return F::Term(x[at.a]);
      },
      cuda::Plus(),
      [y = OnDevice(y)] SYNCLINE_DEVICE(int64_t i, double sum) {
        y[i] = F::Result(static_cast<float>(sum));
      });
}

template <typename F>
void Backward(Stream& stream, const Broadcast& s, ConstFloats x, ConstFloats y,
              ConstFloats dy, bool accumulate, Floats dx) {
  LaunchGradient(
      stream, s, accumulate,
      [x = OnDevice(x), y = OnDevice(y),
       dy = OnDevice(dy)] SYNCLINE_DEVICE(const BroadcastPlace& at) -> float {
        return dy[at.b] * F::Derivative(x[at.a], y[at.b]);
      },
      dx);
}

// A NaN is left out, as a comparison has it: it comes back with the sum.
struct LargerNumber {
  SYNCLINE_DEVICE float operator()(float a, float b) const {
    return b > a ? b : a;
  }
};

void LogSumExp(Stream& stream, const Broadcast& s, ConstFloats x, float* sums,
               float* y) {
  cuda::FoldRepeated(
      stream, s, Side::kB, -INFINITY,
      [x = OnDevice(x)] SYNCLINE_DEVICE(const BroadcastPlace& at) -> float {
        const float value = x[at.a];
        return value == value ? value : -INFINITY;
      },
      LargerNumber(),
      [y = OnDevice(y)] SYNCLINE_DEVICE(int64_t i, float most) {
        y[i] = std::isfinite(most) ? most : 0.0f;
      });
  cuda::FoldRepeated(
      stream, s, Side::kB, 0.0,
      [x = OnDevice(x),
       y = OnDevice(y)] SYNCLINE_DEVICE(const BroadcastPlace& at) -> double {
        return Exp(x[at.a] - y[at.b]);
      },
      cuda::Plus(),
      [sums = OnDevice(sums)] SYNCLINE_DEVICE(int64_t i, double sum) {
        sums[i] = static_cast<float>(sum);
      });
  cuda::LaunchElements(
      stream, s.b_count,
      [sums = OnDevice(sums), y = OnDevice(y)] SYNCLINE_DEVICE(int64_t i) {
        y[i] += std::log(static_cast<float>(sums[i]));
      });
}

void LogSumExpBackward(Stream& stream, const Broadcast& s, ConstFloats x,
                       ConstFloats y, ConstFloats dy, bool accumulate,
                       Floats dx) {
  LaunchGradient(
      stream, s, accumulate,
      [x = OnDevice(x), y = OnDevice(y),
       dy = OnDevice(dy)] SYNCLINE_DEVICE(const BroadcastPlace& at) -> float {
        const float of = y[at.b];
        return of == -INFINITY ? 0.0f : dy[at.b] * Exp(x[at.a] - of);
      },
      dx);
}

struct Times {
  SYNCLINE_DEVICE double operator()(double a, double b) const { return a * b; }
};

void Product(Stream& stream, const Broadcast& s, ConstFloats x,
             double* products, double* zeros, float* y) {
  cuda::FoldRepeated(
      stream, s, Side::kB, 1.0,
      [x = OnDevice(x)] SYNCLINE_DEVICE(const BroadcastPlace& at) -> double {
        const float value = x[at.a];
        return value == 0 ? 1.0 : value;
      },
      Times(),
      [products = OnDevice(products)] SYNCLINE_DEVICE(
          int64_t i, double product) { products[i] = product; });
  cuda::FoldRepeated(
      stream, s, Side::kB, 0.0,
      [x = OnDevice(x)] SYNCLINE_DEVICE(const BroadcastPlace& at) -> double {
        return x[at.a] == 0 ? 1.0 : 0.0;
      },
      cuda::Plus(),
      [products = OnDevice(products), zeros = OnDevice(zeros),
       y = OnDevice(y)] SYNCLINE_DEVICE(int64_t i, double count) {
        zeros[i] = count;
        y[i] = count > 0 ? 0.0f
                         : static_cast<float>(static_cast<double>(products[i]));
      });
}

void ProductBackward(Stream& stream, const Broadcast& s, ConstFloats x,
                     const double* products, const double* zeros,
                     ConstFloats dy, bool accumulate, Floats dx) {
  LaunchGradient(
      stream, s, accumulate,
      [x = OnDevice(x), products = OnDevice(products), zeros = OnDevice(zeros),
       dy = OnDevice(dy)] SYNCLINE_DEVICE(const BroadcastPlace& at) -> float {
        const float factor = x[at.a];
        const double product = products[at.b];
        const double zero_count = zeros[at.b];
        double others = 0;
        if (factor == 0) {
          others = zero_count > 1 ? 0.0 : product;
        } else {
          others = zero_count > 0 ? 0.0 : product / factor;
        }
        return dy[at.b] * static_cast<float>(others);
      },
      dx);
}

}  // namespace

const ReductionKernels& CudaReductionKernels() {
  static constexpr ReductionKernels kKernels = {
      .sum = Sum,
      .sum_backward = SumBackward,
      .functions = {{
#define SYNCLINE_KERNELS_OF(name) \
  {Forward<reduction::name>, Backward<reduction::name>},
          SYNCLINE_REDUCTION_FUNCTIONS(SYNCLINE_KERNELS_OF)
#undef SYNCLINE_KERNELS_OF
      }},
      .log_sum_exp = LogSumExp,
      .log_sum_exp_backward = LogSumExpBackward,
      .product = Product,
      .product_backward = ProductBackward};
  return kKernels;
}

}  // namespace syncline
