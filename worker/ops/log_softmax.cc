#include "worker/ops/softmax_op.h"

namespace syncline::worker {

absl::StatusOr<std::unique_ptr<Op>> MakeLogSoftmax(const OpSpec& spec) {
  return MakeSoftmaxOp(spec, {LogSoftmax, LogSoftmaxGradient});
}

}  // namespace syncline::worker
