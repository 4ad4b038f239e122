#ifndef SYNCLINE_WORKER_OPS_BLOCKS_OF_SPACE_H_
#define SYNCLINE_WORKER_OPS_BLOCKS_OF_SPACE_H_

#include "worker/ops/op.h"

namespace syncline::worker {

// Channels that become blocks of a plane (PyTorch's PixelShuffle), or the other
// way round.
enum class SpaceBlocks { kFromChannels, kIntoChannels };

absl::StatusOr<std::unique_ptr<Op>> MakeBlocksOfSpace(const OpSpec& spec,
                                                      SpaceBlocks direction);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_OPS_BLOCKS_OF_SPACE_H_
