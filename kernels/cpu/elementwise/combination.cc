#include <algorithm>

#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/device/combination_kernels.h"
#include "kernels/elementwise/binary_loop.h"
#include "kernels/elementwise/broadcast.h"
#include "kernels/elementwise/elementwise.h"

namespace syncline {
namespace {

void SpreadInto(Stream& stream, const Broadcast& s, const float* x, float* y) {
  const CpuKernel kernel(stream);
  Spread(s, 1.0f, x, y);
}

void AddTo(Stream& stream, const Broadcast& s, const float* x, float* y) {
  const CpuKernel kernel(stream);
  Add(s, y, x, y);
}

void Scale(Stream& stream, int64_t n, float factor, float* y) {
  const CpuKernel kernel(stream);
  Emit(n, /*accumulate=*/false, y, [=](int64_t i) { return y[i] * factor; });
}

void SumBackward(Stream& stream, const Broadcast& s, float factor,
                 const float* dy, bool accumulate, float* dx) {
  const CpuKernel kernel(stream);
  AddGradient(s, Side::kB, factor, dy, accumulate, dx);
}

template <typename Winner>
void Begin(Stream& stream, const Broadcast& s, const float* x, float* y,
           Winner* winners) {
  const CpuKernel kernel(stream);
  std::fill_n(winners, s.count, Winner{0});
  Spread(s, 1.0f, x, y);
}

struct Larger {
  bool operator()(float x, float y) const { return x > y; }
};
struct Smaller {
  bool operator()(float x, float y) const { return x < y; }
};

template <typename Winner, typename Beats>
void Join(Stream& stream, const Broadcast& s, Winner number, const float* x,
          float* y, Winner* winners) {
  const CpuKernel kernel(stream);
  constexpr Beats kBeats;
  const int64_t n = s.inner;
  ForEachRow(s, [=](auto, auto sb, int64_t o, int64_t, int64_t b) {
    for (int64_t i = 0; i < n; ++i) {
      const float candidate = x[b + i * sb];
      const bool wins = kBeats(candidate, y[o + i]) || candidate != candidate;
      winners[o + i] = wins ? number : winners[o + i];
      y[o + i] = wins ? candidate : y[o + i];
    }
  });
}

template <typename Winner>
void ContestBackward(Stream& stream, const Broadcast& s, Winner number,
                     const Winner* winners, const float* dy, bool accumulate,
                     float* dx) {
  const CpuKernel kernel(stream);
  BinaryGradient(s, Side::kB, accumulate, dx, [=](int64_t o, int64_t, int64_t) {
    return winners[o] == number ? dy[o] : 0.0f;
  });
}

template <typename Winner>
constexpr CombinationKernels::Contest<Winner> ContestOf() {
  return {.begin = Begin<Winner>,
          .maximum = Join<Winner, Larger>,
          .minimum = Join<Winner, Smaller>,
          .backward = ContestBackward<Winner>};
}

}  // namespace

const CombinationKernels& CpuCombinationKernels() {
  static constexpr CombinationKernels kKernels = {
      .spread = SpreadInto,
      .add = AddTo,
      .scale = Scale,
      .sum_backward = SumBackward,
      .few = ContestOf<uint8_t>(),
      .many = ContestOf<uint32_t>()};
  return kKernels;
}

}  // namespace syncline
