#include <cmath>

#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/launch.h"
#include "kernels/device/dropout_kernels.h"
#include "kernels/elementwise/philox.h"

namespace syncline {
namespace {

using cuda::OnDevice;

constexpr int64_t kBlockWords = 4;

// A thread draws a block of words, of which the first and the last one may lie
// outside.
void Draw(Stream& stream, int64_t n, uint64_t seed, int64_t first, double ratio,
          uint8_t* mask) {
  const uint64_t threshold = static_cast<uint64_t>(std::ldexp(ratio, 32));
  const int64_t begin = first / kBlockWords;
  const int64_t end = (first + n + kBlockWords - 1) / kBlockWords;
  cuda::LaunchElements(stream, n == 0 ? 0 : end - begin,
                       [=, mask = OnDevice(mask)] SYNCLINE_DEVICE(int64_t i) {
                         const PhiloxBlock block = PhiloxBlockOf(
                             seed, static_cast<uint64_t>(begin + i));
                         for (int64_t word = 0; word < kBlockWords; ++word) {
                           const int64_t at =
                               (begin + i) * kBlockWords + word - first;
                           if (at < 0 || at >= n) continue;
                           mask[at] = block.words[word] >= threshold;
                         }
                       });
}

void Apply(Stream& stream, int64_t n, float scale, const uint8_t* mask,
           ConstFloats x, bool accumulate, Floats y) {
  cuda::LaunchElements(
      stream, n,
      [scale, accumulate, mask = OnDevice(mask), x = OnDevice(x),
       y = OnDevice(y)] SYNCLINE_DEVICE(int64_t i) {
        const float value = mask[i] != 0 ? x[i] * scale : 0.0f;
        y[i] = accumulate ? y[i] + value : value;
      });
}

void Widen(Stream& stream, int64_t n, const uint8_t* mask, float* y) {
  cuda::LaunchElements(
      stream, n,
      [mask = OnDevice(mask), y = OnDevice(y)] SYNCLINE_DEVICE(int64_t i) {
        y[i] = static_cast<float>(static_cast<uint8_t>(mask[i]));
      });
}

}  // namespace

const DropoutKernels& CudaDropoutKernels() {
  static constexpr DropoutKernels kKernels = {
      .draw = Draw, .apply = Apply, .widen = Widen};
  return kKernels;
}

}  // namespace syncline
