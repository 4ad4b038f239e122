// He et al., ICCV 2015.

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/elementwise/binary_loop.h"
#include "worker/ops/binary.h"

namespace syncline::worker {
namespace {

void Forward(const Broadcast& s, const float* x, const float* slope, float* y) {
  ApplyBinary(s, x, slope, y,
              [](float v, float k) { return v < 0 ? k * v : v; });
}

void GradientX(const BinaryBackward& in) {
  BinaryGradient(in.shape, Side::kA, in.accumulate, in.dx,
                 [&](int64_t o, int64_t ia, int64_t ib) {
                   return in.a[ia] < 0 ? in.dy[o] * in.b[ib] : in.dy[o];
                 });
}

void GradientSlope(const BinaryBackward& in) {
  BinaryGradient(in.shape, Side::kB, in.accumulate, in.dx,
                 [&](int64_t o, int64_t ia, int64_t) {
                   return in.a[ia] < 0 ? in.dy[o] * in.a[ia] : 0.0f;
                 });
}

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakePRelu(const OpSpec& spec) {
  const Dims& x = spec.input(0).dims;
  const Dims& slope = spec.input(1).dims;
  SYNCLINE_ASSIGN_OR_RETURN(const Dims both, BroadcastDims(x, slope));
  if (both != x) {
    return absl::InvalidArgumentError(
        absl::StrCat("the slope is ", DimsToString(slope),
                     ", which cannot be repeated to ", DimsToString(x)));
  }
  return MakeBinary(
      spec, {.forward = Forward,
             .gradient_a = {.run = GradientX, .reads_inputs = 0b11},
             .gradient_b = {.run = GradientSlope, .reads_inputs = 0b01}});
}

}  // namespace syncline::worker
