#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/walk/broadcast_walk.h"
#include "kernels/device/binary_kernels.h"

namespace syncline {
namespace {

template <typename F>
void Forward(Stream& stream, const Broadcast& s, ConstFloats a, ConstFloats b,
             Floats y) {
  cuda::LaunchBroadcast(
      stream, s,
      [a = cuda::OnDevice(a), b = cuda::OnDevice(b),
       y = cuda::OnDevice(y)] SYNCLINE_DEVICE(const cuda::BroadcastPlace& at) {
        y[at.result] = F::Value(a[at.a], b[at.b]);
      });
}

template <typename F, Side kSide>
struct GradientOfElement {
  cuda::ConstFloatArray a;
  cuda::ConstFloatArray b;
  cuda::ConstFloatArray y;
  cuda::ConstFloatArray dy;

  SYNCLINE_DEVICE float operator()(const cuda::BroadcastPlace& at) const {
    constexpr BinaryReads kReads = BinaryReadsOf<F, kSide>();
    BinaryElement e;
    e.dy = dy[at.result];
    if constexpr (kReads.a) e.a = a[at.a];
    if constexpr (kReads.b) e.b = b[at.b];
    if constexpr (kReads.y) e.y = y[at.result];
    return BinaryGradientOf<F, kSide>(e);
  }
};

template <typename F, Side kSide>
void Backward(Stream& stream, const Broadcast& s, ConstFloats a, ConstFloats b,
              ConstFloats y, ConstFloats dy, bool accumulate, Floats dx) {
  cuda::AddUpGradient(
      stream, s, kSide,
      GradientOfElement<F, kSide>{cuda::OnDevice(a), cuda::OnDevice(b),
                                  cuda::OnDevice(y), cuda::OnDevice(dy)},
      accumulate, dx);
}

template <typename F>
constexpr BinaryKernels::Function KernelsOf() {
  return {.forward = Forward<F>,
          .backward_a = Backward<F, Side::kA>,
          .backward_b = Backward<F, Side::kB>};
}

}  // namespace

const BinaryKernels& CudaBinaryKernels() {
  static constexpr BinaryKernels kKernels = {
      .functions = {
#define SYNCLINE_KERNELS_OF(name) KernelsOf<binary::name>(),
          SYNCLINE_BINARY_FUNCTIONS(SYNCLINE_KERNELS_OF)
#undef SYNCLINE_KERNELS_OF
      }};
  return kKernels;
}

}  // namespace syncline
