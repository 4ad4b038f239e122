#include <cmath>

#include "common/base/random.h"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/launch.h"
#include "kernels/device/dropout_kernels.h"
#include "kernels/elementwise/philox.h"

namespace syncline {
namespace {

using cuda::OnDevice;

constexpr int64_t kBlockWords = 4;

// A thread draws a block of words, of which the first and the last one may lie
// outside. The host does not know where the first word is: there is a thread
// for each block that the words may touch.
void Draw(Stream& stream, int64_t n, const MaskWords& words, double ratio,
          uint8_t* mask) {
  const uint64_t threshold = static_cast<uint64_t>(std::ldexp(ratio, 32));
  const int64_t blocks = n == 0 ? 0 : (n + 2 * (kBlockWords - 1)) / kBlockWords;
  cuda::LaunchElements(
      stream, blocks,
      [n, threshold, node = words.node, seed = words.seed,
       per_sample = words.per_sample, numbers = OnDevice(words.numbers),
       mask = OnDevice(mask)] SYNCLINE_DEVICE(int64_t i) {
        const StepNumbers step = numbers[0];
        const int64_t first = step.first_sample * per_sample;
        const int64_t begin = first / kBlockWords;
        const PhiloxBlock block =
            PhiloxBlockOf(SeedFor(SeedFor(step.seed, node), seed),
                          static_cast<uint64_t>(begin + i));
        for (int64_t word = 0; word < kBlockWords; ++word) {
          const int64_t at = (begin + i) * kBlockWords + word - first;
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
