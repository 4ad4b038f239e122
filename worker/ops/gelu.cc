#include "absl/strings/str_cat.h"
#include "kernels/elementwise/activation.h"
#include "worker/ops/unary.h"

namespace syncline::worker {

absl::StatusOr<std::unique_ptr<Op>> MakeGelu(const OpSpec& spec) {
  constexpr auto kInput = UnaryKernels::Saved::kInput;
  const std::string approximate = spec.node->String("approximate", "none");
  if (approximate == "none")
    return MakeUnary(spec, {Gelu, GeluGradient, kInput});
  if (approximate == "tanh") {
    return MakeUnary(spec, {GeluTanh, GeluTanhGradient, kInput});
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "approximate is \"", approximate, "\"; it must be \"none\" or \"tanh\""));
}

}  // namespace syncline::worker
