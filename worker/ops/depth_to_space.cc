#include "worker/ops/blocks_of_space.h"

namespace syncline::worker {

absl::StatusOr<std::unique_ptr<Op>> MakeDepthToSpace(const OpSpec& spec) {
  return MakeBlocksOfSpace(spec, SpaceBlocks::kFromChannels);
}

}  // namespace syncline::worker
