// Goal: no bytes from a peer break the reading of a PushPull frame, and what
// its header says is believed only where it fits the block map.
// Method: the first byte chooses how the rest is cut into slices; what decodes
// is read to its last byte and must encode to a frame that decodes again; what
// the layout accepts must be in order, in range, and of the payload's size.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/base/check.h"
#include "common/wire/frame.h"
#include "proto/parameter_server.pb.h"
#include "server/shard_layout.h"

namespace syncline {
namespace {

// Shard 0 of 2, of a model whose blocks have 4 and 3 elements in turn.
const ShardLayout& Layout() {
  static const ShardLayout* const layout = [] {
    std::vector<TensorSize> tensors;
    for (int i = 0; i < 8; ++i) tensors.push_back({"t", 4 - i % 2});
    return new ShardLayout(*BlockMap::Create(tensors, 2), 0);
  }();
  return *layout;
}

void CheckBlocks(const std::vector<BlockIndex>& blocks) {
  for (size_t i = 0; i < blocks.size(); ++i) {
    SYNCLINE_CHECK(blocks[i] < Layout().counts().size());
    SYNCLINE_CHECK(i == 0 || blocks[i - 1] < blocks[i]);
  }
}

void CheckHeader(const PushPullHeader& header, size_t payload_bytes) {
  const auto push = Layout().CheckPush(header.push(), payload_bytes);
  if (push.ok()) {
    CheckBlocks(push->blocks);
    SYNCLINE_CHECK(push->clock >= 0 && push->squared_norm >= 0);
    SYNCLINE_CHECK(Layout().Offsets(push->blocks).back() * sizeof(float) ==
                   payload_bytes);
  }
  const auto pull = Layout().CheckPull(header.pull());
  if (pull.ok()) CheckBlocks(pull->blocks);
}

}  // namespace
}  // namespace syncline

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const size_t step = 1 + data[0];
  std::vector<grpc::Slice> slices;
  for (size_t at = 1; at < size; at += step) {
    slices.emplace_back(data + at, std::min(step, size - at));
  }
  const grpc::ByteBuffer buffer(slices.data(), slices.size());

  syncline::PushPullHeader header;
  syncline::PayloadView payload;
  if (!syncline::DecodeFrame(buffer, &header, &payload).ok()) return 0;
  syncline::CheckHeader(header, payload.size_bytes());
  std::string values(payload.size_bytes(), '\0');
  payload.CopyTo(0, values.size(), values.data());

  const grpc::ByteBuffer again =
      syncline::EncodeFrame(header, {grpc::Slice(values)});
  SYNCLINE_CHECK(syncline::DecodeFrame(again, &header, &payload).ok());
  SYNCLINE_CHECK(payload.size_bytes() == values.size());
  return 0;
}
