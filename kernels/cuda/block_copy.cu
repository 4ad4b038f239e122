#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/element_bytes.h"
#include "kernels/cuda/launch.h"
#include "kernels/device/block_copy_kernels.h"

namespace syncline {
namespace {

using cuda::Global;
using cuda::OnDevice;

// Calls f(from, to), the places of each element.
template <typename F>
struct BlockElement {
  BlockRows s;
  F f;

  SYNCLINE_DEVICE void operator()(int64_t i) const {
    const int64_t row = i / s.width;
    const int64_t column = i - row * s.width;
    f(row * s.from_row + column, row * s.to_row + column);
  }
};

template <typename F>
void LaunchBlocks(Stream& stream, const BlockRows& s, const F& f) {
  cuda::LaunchElements(stream, s.rows * s.width, BlockElement<F>{s, f});
}

template <typename T>
struct CopyElement {
  Global<const T> x;
  Global<T> y;

  SYNCLINE_DEVICE void operator()(int64_t from, int64_t to) const {
    y[to] = x[from];
  }
};

void Copy(Stream& stream, const BlockRows& s, size_t element_bytes,
          const void* from, void* to) {
  cuda::WithElementBytes(element_bytes, [&](auto element) {
    using T = decltype(element);
    LaunchBlocks(stream, s,
                 CopyElement<T>{OnDevice(static_cast<const T*>(from)),
                                OnDevice(static_cast<T*>(to))});
  });
}

void Gradient(Stream& stream, const BlockRows& s, ConstFloats from,
              bool accumulate, Floats to) {
  LaunchBlocks(stream, s,
               [accumulate, x = OnDevice(from),
                y = OnDevice(to)] SYNCLINE_DEVICE(int64_t at, int64_t into) {
                 const float value = x[at];
                 y[into] = accumulate ? y[into] + value : value;
               });
}

void Clear(Stream& stream, const BlockRows& s, Floats to) {
  LaunchBlocks(stream, s,
               [y = OnDevice(to)] SYNCLINE_DEVICE(int64_t, int64_t into) {
                 y[into] = 0;
               });
}

}  // namespace

const BlockCopyKernels& CudaBlockCopyKernels() {
  static constexpr BlockCopyKernels kKernels = {
      .copy = Copy, .gradient = Gradient, .clear = Clear};
  return kKernels;
}

}  // namespace syncline
