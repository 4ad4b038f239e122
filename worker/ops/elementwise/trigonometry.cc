// Trigonometric and hyperbolic functions and their inverses, element by
// element. Tanh is an activation (activations.cc).

#include "worker/ops/elementwise/pointwise_op.h"

namespace syncline::worker {

absl::StatusOr<std::unique_ptr<Op>> MakeSin(const OpSpec& spec) {
  return MakePointwise(spec, PointwiseFunction::kSin);
}

absl::StatusOr<std::unique_ptr<Op>> MakeCos(const OpSpec& spec) {
  return MakePointwise(spec, PointwiseFunction::kCos);
}

absl::StatusOr<std::unique_ptr<Op>> MakeTan(const OpSpec& spec) {
  return MakePointwise(spec, PointwiseFunction::kTan);
}

absl::StatusOr<std::unique_ptr<Op>> MakeAsin(const OpSpec& spec) {
  return MakePointwise(spec, PointwiseFunction::kAsin);
}

absl::StatusOr<std::unique_ptr<Op>> MakeAcos(const OpSpec& spec) {
  return MakePointwise(spec, PointwiseFunction::kAcos);
}

absl::StatusOr<std::unique_ptr<Op>> MakeAtan(const OpSpec& spec) {
  return MakePointwise(spec, PointwiseFunction::kAtan);
}

absl::StatusOr<std::unique_ptr<Op>> MakeSinh(const OpSpec& spec) {
  return MakePointwise(spec, PointwiseFunction::kSinh);
}

absl::StatusOr<std::unique_ptr<Op>> MakeCosh(const OpSpec& spec) {
  return MakePointwise(spec, PointwiseFunction::kCosh);
}

absl::StatusOr<std::unique_ptr<Op>> MakeAsinh(const OpSpec& spec) {
  return MakePointwise(spec, PointwiseFunction::kAsinh);
}

absl::StatusOr<std::unique_ptr<Op>> MakeAcosh(const OpSpec& spec) {
  return MakePointwise(spec, PointwiseFunction::kAcosh);
}

absl::StatusOr<std::unique_ptr<Op>> MakeAtanh(const OpSpec& spec) {
  return MakePointwise(spec, PointwiseFunction::kAtanh);
}

}  // namespace syncline::worker
