#include <cmath>

#include "kernels/elementwise/binary_loop.h"
#include "worker/ops/binary.h"
#include "worker/ops/integers.h"

namespace syncline::worker {
namespace {

// The remainder of a division towards 0, which is all that ONNX defines for
// floating point.
void Forward(const Broadcast& s, const float* a, const float* b, float* y) {
  ApplyBinary(s, a, b, y, [](float p, float q) { return std::fmod(p, q); });
}

void GradientA(const BinaryBackward& in) {
  AddGradient(in.shape, Side::kA, 1, in.dy, in.accumulate, in.dx);
}

void GradientB(const BinaryBackward& in) {
  const auto term = [&](int64_t o, int64_t a, int64_t b) {
    return -in.dy[o] * std::trunc(in.a[a] / in.b[b]);
  };
  BinaryGradient(in.shape, Side::kB, in.accumulate, in.dx, term);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeMod(const OpSpec& spec) {
  const bool truncates = spec.node->Int("fmod", 0) != 0;
  if (IsInteger(spec.input(0).dtype)) {
    return MakeIntegerArithmetic(spec, truncates ? IntegerFunction::kRemainder
                                                 : IntegerFunction::kModulo);
  }
  if (!truncates) {
    return absl::InvalidArgumentError(
        "fmod is 0, which ONNX defines for integers only");
  }
  return MakeBinary(spec,
                    {.forward = Forward,
                     .gradient_a = {GradientA},
                     .gradient_b = {.run = GradientB, .reads_inputs = 0b11}});
}

}  // namespace syncline::worker
