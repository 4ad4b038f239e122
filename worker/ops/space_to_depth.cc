#include "worker/ops/blocks_of_space.h"

namespace syncline::worker {

absl::StatusOr<std::unique_ptr<Op>> MakeSpaceToDepth(const OpSpec& spec) {
  return MakeBlocksOfSpace(spec, SpaceBlocks::kIntoChannels);
}

}  // namespace syncline::worker
