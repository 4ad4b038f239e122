#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/on_float32.h"
#include "kernels/device/select_kernels.h"
#include "kernels/elementwise/binary_loop.h"
#include "kernels/threads.h"

namespace syncline {
namespace {

using Walk = Strided<3>;

template <typename T>
void SelectOf(const Walk& walk, const uint8_t* condition, const void* chosen,
              const void* other, void* result) {
  const T* const a = static_cast<const T*>(chosen);
  const T* const b = static_cast<const T*>(other);
  T* const y = static_cast<T*>(result);
  const int64_t n = walk.inner();
  const int64_t by_c = walk.inner_strides()[0];
  const int64_t by_a = walk.inner_strides()[1];
  const int64_t by_b = walk.inner_strides()[2];
  const auto select = [=](int64_t o, const Walk::Offsets& at) {
    const uint8_t* const c = condition + at[0];
    const T* const p = a + at[1];
    const T* const q = b + at[2];
    for (int64_t i = 0; i < n; ++i) {
      y[o + i] = c[i * by_c] != 0 ? p[i * by_a] : q[i * by_b];
    }
  };
  const int64_t parts = walk.outermost();
  ParallelForRows(parts, parts == 0 ? 0 : walk.count() / parts,
                  [&](int64_t begin, int64_t end) {
                    walk.ForEachRowIn(begin, end, select);
                  });
}

void Forward(Stream& stream, const Walk& walk, size_t element_bytes,
             const uint8_t* condition, const void* a, const void* b, void* y) {
  const CpuKernel kernel(stream);
  switch (element_bytes) {
    case 1:
      return SelectOf<uint8_t>(walk, condition, a, b, y);
    case 2:
      return SelectOf<uint16_t>(walk, condition, a, b, y);
    case 4:
      return SelectOf<uint32_t>(walk, condition, a, b, y);
    default:
      return SelectOf<uint64_t>(walk, condition, a, b, y);
  }
}

void Backward(Stream& stream, const Broadcast& s, bool chosen,
              const uint8_t* condition, const float* dy, bool accumulate,
              float* dx) {
  const CpuKernel kernel(stream);
  BinaryGradient(s, Side::kA, accumulate, dx,
                 [=](int64_t o, int64_t, int64_t c) {
                   return (condition[c] != 0) == chosen ? dy[o] : 0.0f;
                 });
}

}  // namespace

const SelectKernels& CpuSelectKernels() {
  static constexpr SelectKernels kKernels = {.forward = Forward,
                                             .backward = OnFloat32<Backward>};
  return kKernels;
}

}  // namespace syncline
