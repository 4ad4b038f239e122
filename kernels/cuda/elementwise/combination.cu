#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/spread.h"
#include "kernels/cuda/walk/broadcast_walk.h"
#include "kernels/device/combination_kernels.h"

namespace syncline {
namespace {

using cuda::BroadcastPlace;
using cuda::Global;
using cuda::OnDevice;

void SpreadInto(Stream& stream, const Broadcast& s, const float* x, float* y) {
  cuda::Spread(stream, s, /*scale=*/1, x, y);
}

void AddTo(Stream& stream, const Broadcast& s, const float* x, float* y) {
  cuda::LaunchBroadcast(
      stream, s,
      [x = OnDevice(x), y = OnDevice(y)] SYNCLINE_DEVICE(
          const BroadcastPlace& at) { y[at.result] += x[at.b]; });
}

void Scale(Stream& stream, int64_t n, float factor, float* y) {
  cuda::LaunchElements(
      stream, n,
      [factor, y = OnDevice(y)] SYNCLINE_DEVICE(int64_t i) { y[i] *= factor; });
}

void SumBackward(Stream& stream, const Broadcast& s, float factor,
                 const float* dy, bool accumulate, float* dx) {
  cuda::SpreadGradient(stream, s, factor, dy, accumulate, dx);
}

template <typename Winner>
void Begin(Stream& stream, const Broadcast& s, const float* x, float* y,
           Winner* winners) {
  cuda::LaunchBroadcast(
      stream, s,
      [x = OnDevice(x), y = OnDevice(y),
       winners = OnDevice(winners)] SYNCLINE_DEVICE(const BroadcastPlace& at) {
        y[at.result] = x[at.b];
        winners[at.result] = 0;
      });
}

struct Larger {
  SYNCLINE_DEVICE static bool Beats(float x, float y) { return x > y; }
};
struct Smaller {
  SYNCLINE_DEVICE static bool Beats(float x, float y) { return x < y; }
};

template <typename Winner, typename F>
void Join(Stream& stream, const Broadcast& s, Winner number, const float* x,
          float* y, Winner* winners) {
  cuda::LaunchBroadcast(
      stream, s,
      [number, x = OnDevice(x), y = OnDevice(y),
       winners = OnDevice(winners)] SYNCLINE_DEVICE(const BroadcastPlace& at) {
        const float candidate = x[at.b];
        const bool wins =
            F::Beats(candidate, y[at.result]) || candidate != candidate;
        if (!wins) return;
        winners[at.result] = number;
        y[at.result] = candidate;
      });
}

template <typename Winner>
void ContestBackward(Stream& stream, const Broadcast& s, Winner number,
                     const Winner* winners, const float* dy, bool accumulate,
                     float* dx) {
  cuda::AddUpGradient(
      stream, s, Side::kB,
      [number, winners = OnDevice(winners),
       dy = OnDevice(dy)] SYNCLINE_DEVICE(const BroadcastPlace& at) -> float {
        return winners[at.result] == number ? static_cast<float>(dy[at.result])
                                            : 0.0f;
      },
      accumulate, dx);
}

template <typename Winner>
constexpr CombinationKernels::Contest<Winner> ContestOf() {
  return {.begin = Begin<Winner>,
          .maximum = Join<Winner, Larger>,
          .minimum = Join<Winner, Smaller>,
          .backward = ContestBackward<Winner>};
}

}  // namespace

const CombinationKernels& CudaCombinationKernels() {
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
