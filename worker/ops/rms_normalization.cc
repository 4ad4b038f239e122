#include "worker/ops/layer_norm_op.h"

namespace syncline::worker {

absl::StatusOr<std::unique_ptr<Op>> MakeRMSNormalization(const OpSpec& spec) {
  return MakeLayerNormOp(spec, /*centred=*/false);
}

}  // namespace syncline::worker
