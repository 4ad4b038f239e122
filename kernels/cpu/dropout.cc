#include <algorithm>
#include <cmath>

#include "common/base/random.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/on_float32.h"
#include "kernels/device/dropout_kernels.h"
#include "kernels/elementwise/loop.h"
#include "kernels/elementwise/philox.h"

namespace syncline {
namespace {

// Blocks of Philox that are computed side by side, in vector registers.
constexpr int kLanes = 16;

// Words 4 * kLanes * group and those that follow, as many, of the seed.
void DrawWords(uint64_t seed, uint64_t group, uint32_t (&words)[4 * kLanes]) {
  uint32_t x[4][kLanes];
  for (int lane = 0; lane < kLanes; ++lane) {
    const uint64_t block = group * kLanes + lane;
    x[0][lane] = static_cast<uint32_t>(block);
    x[1][lane] = static_cast<uint32_t>(block >> 32);
    x[2][lane] = 0;
    x[3][lane] = 0;
  }
  auto key0 = static_cast<uint32_t>(seed);
  auto key1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < kPhiloxRounds; ++round) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const PhiloxBlock y = PhiloxRound(
          {{x[0][lane], x[1][lane], x[2][lane], x[3][lane]}}, key0, key1);
      for (int word = 0; word < 4; ++word) x[word][lane] = y.words[word];
    }
    key0 += kPhiloxStep0;
    key1 += kPhiloxStep1;
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int word = 0; word < 4; ++word) {
      words[4 * lane + word] = x[word][lane];
    }
  }
}

void Draw(Stream& stream, int64_t n, const MaskWords& of, double ratio,
          uint8_t* mask) {
  const CpuKernel kernel(stream);
  const StepNumbers& step = *of.numbers;
  const uint64_t seed = SeedFor(SeedFor(step.seed, of.node), of.seed);
  const int64_t first = step.first_sample * of.per_sample;
  constexpr int64_t kWords = int64_t{4} * kLanes;
  const uint64_t threshold = static_cast<uint64_t>(std::ldexp(ratio, 32));
  uint32_t words[kWords];
  for (int64_t i = 0; i < n;) {
    const int64_t word = first + i;
    DrawWords(seed, static_cast<uint64_t>(word / kWords), words);
    const int64_t skipped = word % kWords;
    const int64_t count = std::min(n - i, kWords - skipped);
    for (int64_t k = 0; k < count; ++k) {
      mask[i + k] = words[skipped + k] >= threshold;
    }
    i += count;
  }
}

void Apply(Stream& stream, int64_t n, float scale, const uint8_t* mask,
           const float* x, bool accumulate, float* y) {
  const CpuKernel kernel(stream);
  Emit(n, accumulate, y,
       [=](int64_t i) { return mask[i] != 0 ? x[i] * scale : 0.0f; });
}

void Widen(Stream& stream, int64_t n, const uint8_t* mask, float* y) {
  const CpuKernel kernel(stream);
  Emit(n, /*accumulate=*/false, y,
       [=](int64_t i) { return static_cast<float>(mask[i]); });
}

}  // namespace

const DropoutKernels& CpuDropoutKernels() {
  static constexpr DropoutKernels kKernels = {
      .draw = Draw, .apply = OnFloat32<Apply>, .widen = Widen};
  return kKernels;
}

}  // namespace syncline
