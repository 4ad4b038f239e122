#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/launch.h"
#include "kernels/device/pointwise_kernels.h"

namespace syncline {
namespace {

template <typename F>
struct BackwardKernel {
  F f;
  bool accumulate;
  cuda::ConstFloatArray saved;
  cuda::ConstFloatArray dy;
  cuda::FloatArray dx;

  SYNCLINE_DEVICE void operator()(int64_t i) const {
    float value = 0;
    if constexpr (GradientReadsOf<F>() == GradientReads::kNothing) {
      value = f.Gradient(0, dy[i]);
    } else {
      value = GradientOf(f, saved[i], dy[i]);
    }
    dx[i] = accumulate ? dx[i] + value : value;
  }
};

template <typename F>
void Forward(Stream& stream, const PointwiseSettings& settings, int64_t n,
             ConstFloats x, Floats y) {
  cuda::LaunchElements(stream, n,
                       [f = WithSettings<F>(settings), x = cuda::OnDevice(x),
                        y = cuda::OnDevice(y)] SYNCLINE_DEVICE(int64_t i) {
                         y[i] = f.Value(x[i]);
                       });
}

template <typename F>
void Backward(Stream& stream, const PointwiseSettings& settings, int64_t n,
              ConstFloats saved, ConstFloats dy, bool accumulate, Floats dx) {
  cuda::LaunchElements(
      stream, n,
      BackwardKernel<F>{WithSettings<F>(settings), accumulate,
                        cuda::OnDevice(saved), cuda::OnDevice(dy),
                        cuda::OnDevice(dx)});
}

template <typename F>
constexpr PointwiseKernels::Function KernelsOf() {
  if constexpr (GradientReadsOf<F>() == GradientReads::kNoGradient) {
    return {.forward = Forward<F>};
  } else {
    return {.forward = Forward<F>, .backward = Backward<F>};
  }
}

}  // namespace

const PointwiseKernels& CudaPointwiseKernels() {
  static constexpr PointwiseKernels kKernels = {
      .functions = {
#define SYNCLINE_KERNELS_OF(name) KernelsOf<pointwise::name>(),
          SYNCLINE_POINTWISE_FUNCTIONS(SYNCLINE_KERNELS_OF)
#undef SYNCLINE_KERNELS_OF
      }};
  return kKernels;
}

}  // namespace syncline
