#include "worker/ops/softmax_op.h"

namespace syncline {

absl::StatusOr<std::unique_ptr<Op>> MakeSoftmax(const OpSpec& spec) {
  return MakeSoftmaxOp(spec, {Softmax, SoftmaxGradient});
}

}  // namespace syncline
