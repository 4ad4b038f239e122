#include "worker/ops/without_gradient.h"

namespace syncline::worker {

absl::StatusOr<std::unique_ptr<Op>> MakeSize(const OpSpec& spec) {
  return MakeOpWithoutGradient(
      [count = spec.input(0).count()](const Op::Tensors& t) {
        *static_cast<int64_t*>(t.outputs[0]) = count;
        return absl::OkStatus();
      });
}

}  // namespace syncline::worker
