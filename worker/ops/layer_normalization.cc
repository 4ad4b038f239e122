#include "worker/ops/layer_norm_op.h"

namespace syncline::worker {

absl::StatusOr<std::unique_ptr<Op>> MakeLayerNormalization(const OpSpec& spec) {
  return MakeLayerNormOp(spec, /*centred=*/true);
}

}  // namespace syncline::worker
