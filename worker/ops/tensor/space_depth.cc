#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "worker/ops/tensor/strided_copy.h"

namespace syncline::worker {
namespace {

// Channels that become blocks of a plane (PyTorch's PixelShuffle), or the other
// way round.
enum class SpaceBlocks { kFromChannels, kIntoChannels };

// Of the result's dimensions, with a block's own.
struct Order {
  Dims dims;
  Dims strides;  // in the input
  Dims result;
};

absl::StatusOr<Order> FromChannels(const Node& node, const Dims& x,
                                   int64_t block) {
  const std::string mode = node.String("mode", "DCR");
  if (mode != "DCR" && mode != "CRD") {
    return absl::InvalidArgumentError(
        absl::StrCat("mode is \"", mode, "\"; it must be DCR or CRD"));
  }
  const int64_t plane = x[2] * x[3];
  const int64_t channels = x[1] / (block * block);
  // Where the channel, the row and the column in a block are among channels.
  const bool depth_first = mode == "DCR";
  const int64_t channel = depth_first ? plane : block * block * plane;
  const int64_t row = depth_first ? block * channels * plane : block * plane;
  const int64_t column = depth_first ? channels * plane : plane;
  return Order{{x[0], channels, x[2], block, x[3], block},
               {x[1] * plane, channel, x[3], row, 1, column},
               {x[0], channels, x[2] * block, x[3] * block}};
}

Order IntoChannels(const Dims& x, int64_t block) {
  const int64_t plane = x[2] * x[3];
  const int64_t rows = x[2] / block;
  const int64_t columns = x[3] / block;
  return {{x[0], block, block, x[1], rows, columns},
          {x[1] * plane, x[3], 1, plane, block * x[3], block},
          {x[0], x[1] * block * block, rows, columns}};
}

absl::StatusOr<std::unique_ptr<Op>> MakeBlocksOfSpace(const OpSpec& spec,
                                                      SpaceBlocks direction) {
  const Dims& x = spec.input(0).dims;
  const int64_t block = spec.node->Int("blocksize", 0);
  const bool from_channels = direction == SpaceBlocks::kFromChannels;
  constexpr int64_t kBlockMax = 1 << 20;  // its square is far from overflow
  const bool fits = x.size() == 4 && block > 0 && block <= kBlockMax &&
                    (from_channels ? x[1] % (block * block) == 0
                                   : x[2] % block == 0 && x[3] % block == 0);
  if (!fits) {
    return absl::InvalidArgumentError(absl::StrCat(
        "input 0 is ", DimsToString(x),
        "; it must have 4 dimensions, of which ",
        from_channels ? "the second is a multiple of blocksize squared"
                      : "the last two are multiples of blocksize",
        ", which is ", block));
  }
  Order order = IntoChannels(x, from_channels ? 1 : block);
  if (from_channels) {
    SYNCLINE_ASSIGN_OR_RETURN(order, FromChannels(*spec.node, x, block));
  }
  if (order.result != spec.output(0).dims) {
    return absl::InvalidArgumentError(
        absl::StrCat("the result is ", DimsToString(order.result), ", not ",
                     DimsToString(spec.output(0).dims)));
  }
  return MakeStridedCopy(spec, Strided<1>(order.dims, {order.strides}),
                         /*each_once=*/true);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeDepthToSpace(const OpSpec& spec) {
  return MakeBlocksOfSpace(spec, SpaceBlocks::kFromChannels);
}

absl::StatusOr<std::unique_ptr<Op>> MakeSpaceToDepth(const OpSpec& spec) {
  return MakeBlocksOfSpace(spec, SpaceBlocks::kIntoChannels);
}

}  // namespace syncline::worker
