#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/element_bytes.h"
#include "kernels/cuda/walk/strided_walk.h"
#include "kernels/device/select_kernels.h"

namespace syncline {
namespace {

using cuda::Global;
using cuda::OnDevice;

template <typename T>
struct SelectElement {
  Global<const uint8_t> condition;
  Global<const T> a;
  Global<const T> b;
  Global<T> y;

  SYNCLINE_DEVICE void operator()(int64_t i,
                                  const Strided<3>::Offsets& at) const {
    y[i] = condition[at[0]] != 0 ? a[at[1]] : b[at[2]];
  }
};

void Forward(Stream& stream, const Strided<3>& walk, size_t element_bytes,
             const uint8_t* condition, const void* a, const void* b, void* y) {
  cuda::WithElementBytes(element_bytes, [&](auto element) {
    using T = decltype(element);
    cuda::LaunchStrided(stream, walk,
                        SelectElement<T>{OnDevice(condition),
                                         OnDevice(static_cast<const T*>(a)),
                                         OnDevice(static_cast<const T*>(b)),
                                         OnDevice(static_cast<T*>(y))});
  });
}

void Backward(Stream& stream, const Broadcast& s, bool chosen,
              const uint8_t* condition, ConstFloats dy, bool accumulate,
              Floats dx) {
  cuda::AddUpGradient(
      stream, s, Side::kA,
      [chosen, condition = OnDevice(condition),
       dy = OnDevice(
           dy)] SYNCLINE_DEVICE(const cuda::BroadcastPlace& at) -> float {
        const bool is_first = condition[at.b] != 0;
        return is_first == chosen ? static_cast<float>(dy[at.result]) : 0.0f;
      },
      accumulate, dx);
}

}  // namespace

const SelectKernels& CudaSelectKernels() {
  static constexpr SelectKernels kKernels = {.forward = Forward,
                                             .backward = Backward};
  return kKernels;
}

}  // namespace syncline
