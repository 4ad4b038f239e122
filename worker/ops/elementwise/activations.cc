// Activations: functions between the layers of a network, element by element.

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/elementwise/broadcast.h"
#include "worker/ops/elementwise/binary_op.h"
#include "worker/ops/elementwise/pointwise_op.h"

namespace syncline::worker {
absl::StatusOr<std::unique_ptr<Op>> MakeCelu(const OpSpec& spec) {
  return MakePointwise(spec, PointwiseFunction::kCelu,
                       {spec.node->Float("alpha", 1.0f)});
}

absl::StatusOr<std::unique_ptr<Op>> MakeElu(const OpSpec& spec) {
  return MakePointwise(spec, PointwiseFunction::kElu,
                       {spec.node->Float("alpha", 1.0f)});
}

absl::StatusOr<std::unique_ptr<Op>> MakeGelu(const OpSpec& spec) {
  const std::string approximate = spec.node->String("approximate", "none");
  if (approximate == "none") {
    return MakePointwise(spec, PointwiseFunction::kGelu);
  }
  if (approximate == "tanh") {
    return MakePointwise(spec, PointwiseFunction::kGeluTanh);
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "approximate is \"", approximate, "\"; it must be \"none\" or \"tanh\""));
}

absl::StatusOr<std::unique_ptr<Op>> MakeHardSigmoid(const OpSpec& spec) {
  return MakePointwise(
      spec, PointwiseFunction::kHardSigmoid,
      {spec.node->Float("alpha", 0.2f), spec.node->Float("beta", 0.5f)});
}

absl::StatusOr<std::unique_ptr<Op>> MakeHardSwish(const OpSpec& spec) {
  return MakePointwise(spec, PointwiseFunction::kHardSwish);
}

absl::StatusOr<std::unique_ptr<Op>> MakeLeakyRelu(const OpSpec& spec) {
  return MakePointwise(spec, PointwiseFunction::kLeakyRelu,
                       {spec.node->Float("alpha", 0.01f)});
}

absl::StatusOr<std::unique_ptr<Op>> MakeMish(const OpSpec& spec) {
  return MakePointwise(spec, PointwiseFunction::kMish);
}

absl::StatusOr<std::unique_ptr<Op>> MakePRelu(const OpSpec& spec) {
  const Dims& x = spec.input(0).dims;
  const Dims& slope = spec.input(1).dims;
  SYNCLINE_ASSIGN_OR_RETURN(const Dims both, BroadcastDims(x, slope));
  if (both != x) {
    return absl::InvalidArgumentError(
        absl::StrCat("the slope is ", DimsToString(slope),
                     ", which cannot be repeated to ", DimsToString(x)));
  }
  return MakeBinary(spec, BinaryFunction::kPRelu);
}

absl::StatusOr<std::unique_ptr<Op>> MakeRelu(const OpSpec& spec) {
  return MakePointwise(spec, PointwiseFunction::kRelu);
}

absl::StatusOr<std::unique_ptr<Op>> MakeSelu(const OpSpec& spec) {
  return MakePointwise(spec, PointwiseFunction::kSelu,
                       {spec.node->Float("alpha", 1.67326319f),
                        spec.node->Float("gamma", 1.05070102f)});
}

absl::StatusOr<std::unique_ptr<Op>> MakeShrink(const OpSpec& spec) {
  return MakePointwise(
      spec, PointwiseFunction::kShrink,
      {spec.node->Float("lambd", 0.5f), spec.node->Float("bias", 0.0f)});
}

absl::StatusOr<std::unique_ptr<Op>> MakeSigmoid(const OpSpec& spec) {
  return MakePointwise(spec, PointwiseFunction::kSigmoid);
}

absl::StatusOr<std::unique_ptr<Op>> MakeSoftplus(const OpSpec& spec) {
  return MakePointwise(spec, PointwiseFunction::kSoftplus);
}

absl::StatusOr<std::unique_ptr<Op>> MakeSoftsign(const OpSpec& spec) {
  return MakePointwise(spec, PointwiseFunction::kSoftsign);
}

absl::StatusOr<std::unique_ptr<Op>> MakeSwish(const OpSpec& spec) {
  return MakePointwise(spec, PointwiseFunction::kSwish,
                       {spec.node->Float("alpha", 1.0f)});
}

absl::StatusOr<std::unique_ptr<Op>> MakeTanh(const OpSpec& spec) {
  return MakePointwise(spec, PointwiseFunction::kTanh);
}

absl::StatusOr<std::unique_ptr<Op>> MakeThresholdedRelu(const OpSpec& spec) {
  return MakePointwise(spec, PointwiseFunction::kThresholdedRelu,
                       {spec.node->Float("alpha", 1.0f)});
}

}  // namespace syncline::worker
