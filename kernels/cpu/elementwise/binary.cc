#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/on_float32.h"
#include "kernels/device/binary_kernels.h"
#include "kernels/elementwise/binary_loop.h"
#include "kernels/elementwise/broadcast.h"
#include "kernels/threads.h"

namespace syncline {
namespace {

// Calls run(part) for what each thread has of the result.
template <typename Run>
void ForParts(const Broadcast& s, Run run) {
  const int64_t rows = OutermostCount(s);
  ParallelForRows(
      rows, rows == 0 ? 0 : s.count / rows,
      [&](int64_t begin, int64_t end) { run(PartOf(s, begin, end)); });
}

template <typename F>
void Forward(Stream& stream, const Broadcast& s, const float* a, const float* b,
             float* y) {
  const CpuKernel kernel(stream);
  ForParts(s, [=](const BroadcastPart& part) {
    ApplyBinary(part.shape, a + part.a, b + part.b, y + part.result,
                [](float p, float q) { return F::Value(p, q); });
  });
}

template <typename F, Side kSide>
void Gradient(const Broadcast& s, const float* a, const float* b,
              const float* y, const float* dy, bool accumulate, float* dx) {
  constexpr BinaryReads kReads = BinaryReadsOf<F, kSide>();
  BinaryGradient(s, kSide, accumulate, dx,
                 [=](int64_t o, int64_t ia, int64_t ib) {
                   BinaryElement e = {.dy = dy[o]};
                   if constexpr (kReads.a) e.a = a[ia];
                   if constexpr (kReads.b) e.b = b[ib];
                   if constexpr (kReads.y) e.y = y[o];
                   return BinaryGradientOf<F, kSide>(e);
                 });
}

// An array that a gradient does not read may be null.
const float* Moved(const float* array, int64_t offset) {
  return array == nullptr ? nullptr : array + offset;
}

// An operand that is repeated has sums, which are not cut.
template <typename F, Side kSide>
void Backward(Stream& stream, const Broadcast& s, const float* a,
              const float* b, const float* y, const float* dy, bool accumulate,
              float* dx) {
  const CpuKernel kernel(stream);
  const int64_t operand = kSide == Side::kA ? s.a_count : s.b_count;
  if (operand != s.count) {
    Gradient<F, kSide>(s, a, b, y, dy, accumulate, dx);
    return;
  }
  ForParts(s, [=](const BroadcastPart& part) {
    Gradient<F, kSide>(part.shape, Moved(a, part.a), Moved(b, part.b),
                       Moved(y, part.result), dy + part.result, accumulate,
                       dx + part.result);
  });
}

template <typename F>
constexpr BinaryKernels::Function KernelsOf() {
  return {.forward = OnFloat32<Forward<F>>,
          .backward_a = OnFloat32<Backward<F, Side::kA>>,
          .backward_b = OnFloat32<Backward<F, Side::kB>>};
}

}  // namespace

const BinaryKernels& CpuBinaryKernels() {
  static constexpr BinaryKernels kKernels = {
      .functions = {
#define SYNCLINE_KERNELS_OF(name) KernelsOf<binary::name>(),
          SYNCLINE_BINARY_FUNCTIONS(SYNCLINE_KERNELS_OF)
#undef SYNCLINE_KERNELS_OF
      }};
  return kKernels;
}

}  // namespace syncline
