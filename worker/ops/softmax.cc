#include "worker/ops/softmax_op.h"

namespace syncline::worker {

absl::StatusOr<std::unique_ptr<Op>> MakeSoftmax(const OpSpec& spec) {
  return MakeSoftmaxOp(spec, {Softmax, SoftmaxGradient});
}

}  // namespace syncline::worker
