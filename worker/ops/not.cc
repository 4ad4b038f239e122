#include "worker/ops/without_gradient.h"

namespace syncline::worker {

absl::StatusOr<std::unique_ptr<Op>> MakeNot(const OpSpec& spec) {
  return MakeOpWithoutGradient(
      [count = spec.input(0).count()](const Op::Tensors& t) {
        const auto* const x = static_cast<const uint8_t*>(t.inputs[0]);
        auto* const y = static_cast<uint8_t*>(t.outputs[0]);
        for (int64_t i = 0; i < count; ++i) y[i] = x[i] == 0;
        return absl::OkStatus();
      });
}

}  // namespace syncline::worker
