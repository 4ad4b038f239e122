#include "kernels/cuda/spread.h"
#include "kernels/cuda/walk/broadcast_walk.h"

namespace syncline::cuda {
namespace {

struct ScaledGradient {
  float scale;
  ConstFloatArray dy;

  SYNCLINE_DEVICE float operator()(const BroadcastPlace& at) const {
    return scale * dy[at.result];
  }
};

}  // namespace

void Spread(Stream& stream, const Broadcast& s, float scale, ConstFloats c,
            Floats y) {
  LaunchBroadcast(
      stream, s,
      [scale, c = OnDevice(c), y = OnDevice(y)] SYNCLINE_DEVICE(
          const BroadcastPlace& at) { y[at.result] = scale * c[at.b]; });
}

void SpreadGradient(Stream& stream, const Broadcast& s, float scale,
                    ConstFloats dy, bool accumulate, Floats dc) {
  AddUpGradient(stream, s, Side::kB, ScaledGradient{scale, OnDevice(dy)},
                accumulate, dc);
}

}  // namespace syncline::cuda
