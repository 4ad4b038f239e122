#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/element_bytes.h"
#include "kernels/cuda/walk/strided_walk.h"
#include "kernels/device/strided_copy_kernels.h"

namespace syncline {
namespace {

using cuda::Global;
using cuda::OnDevice;

template <typename T>
struct CopyElement {
  Global<const T> x;
  Global<T> y;

  SYNCLINE_DEVICE void operator()(int64_t i,
                                  const Strided<1>::Offsets& at) const {
    y[i] = x[at[0]];
  }
};

void Copy(Stream& stream, const Strided<1>& walk, size_t element_bytes,
          const void* x, void* y) {
  cuda::WithElementBytes(element_bytes, [&](auto element) {
    using T = decltype(element);
    cuda::LaunchStrided(stream, walk,
                        CopyElement<T>{OnDevice(static_cast<const T*>(x)),
                                       OnDevice(static_cast<T*>(y))});
  });
}

void Scatter(Stream& stream, const Strided<1>& walk, ConstFloats dy,
             Floats dx) {
  cuda::LaunchStrided(
      stream, walk,
      [dy = OnDevice(dy), dx = OnDevice(dx)] SYNCLINE_DEVICE(
          int64_t i, const Strided<1>::Offsets& at) { dx[at[0]] = dy[i]; });
}

// Gathered by each element, over the loops that repeat it.
void Add(Stream& stream, const Strided<1>& walk, ConstFloats dy, Floats dx) {
  cuda::SumTerms(
      stream, walk, /*array=*/0,
      [dy = OnDevice(dy)] SYNCLINE_DEVICE(const int64_t* at) -> double {
        return dy[at[1]];
      },
      [dx = OnDevice(dx)] SYNCLINE_DEVICE(const int64_t* at, double sum) {
        dx[at[0]] += static_cast<float>(sum);
      });
}

void AddRepeated(Stream& stream, const Broadcast& repeats, ConstFloats dy,
                 bool accumulate, Floats dx) {
  cuda::AddUpGradient(
      stream, repeats, Side::kB,
      [dy = OnDevice(dy)] SYNCLINE_DEVICE(
          const cuda::BroadcastPlace& at) -> float { return dy[at.result]; },
      accumulate, dx);
}

}  // namespace

const StridedCopyKernels& CudaStridedCopyKernels() {
  static constexpr StridedCopyKernels kKernels = {.copy = Copy,
                                                  .scatter = Scatter,
                                                  .add = Add,
                                                  .add_repeated = AddRepeated};
  return kKernels;
}

}  // namespace syncline
