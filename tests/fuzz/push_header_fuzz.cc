// Goal: no bytes from a peer break the reading of a PushPull frame, and what
// its header says is believed only where it fits the block map, what it says of
// shared memory only where it lies in a region of this peer's.
// Method: the first byte chooses how the rest is cut into slices; what decodes
// is read to its last byte and must encode to a frame that decodes again; what
// the layout accepts must be in order, in range, and of the payload's size;
// what is accepted of shared memory is read and written to its last byte.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "common/base/check.h"
#include "common/system/local_socket.h"
#include "common/system/shared_region.h"
#include "common/wire/frame.h"
#include "proto/parameter_server.pb.h"
#include "server/memory/shared_regions.h"
#include "server/shard/shard_layout.h"

namespace syncline {
namespace {

// Shard 0 of 2, of a model whose blocks have 4 and 3 elements in turn and whose
// two tables have rows of 1 and 5.
const ps::ShardLayout* MakeLayout(ElementType type) {
  std::vector<TensorSize> tensors;
  for (int i = 0; i < 8; ++i) tensors.push_back({"t", 4 - i % 2});
  const TableMap map = *TableMap::Create(4, 2);
  return new ps::ShardLayout(*BlockMap::Create(tensors, 2), 0,
                             {{"a", 1, map}, {"b", 5, map}},
                             RegimeSchedule(TrainingRegime{.wire_type = type}));
}

// The layout of a job with the wire type of `push`.
const ps::ShardLayout& LayoutOf(const PushHeader& push) {
  static const ps::ShardLayout* const whole = MakeLayout(ElementType::kFloat32);
  static const ps::ShardLayout* const narrow =
      MakeLayout(ElementType::kBfloat16);
  return push.wire_type() == WIRE_BFLOAT16 ? *narrow : *whole;
}

// One region of 64 KiB; messages call it 1.
struct Memory {
  Memory() : regions({.boot_id = "here"}) {
    region = *SharedRegion::Create(64 << 10);
    const auto offer = *regions.MakeOffer("here", absl::Now());
    connection = *SendDescriptor(offer.socket, offer.token, region->memory());
    name = *regions.Attach(offer.token, SharedRegion::Access::kReadWrite,
                           absl::Now());
  }
  ps::SharedRegions regions;
  std::shared_ptr<SharedRegion> region;
  FileDescriptor connection;
  uint64_t name = 0;
};

void CheckShared(SharedMemory shared) {
  static const Memory* const memory = new Memory();
  const auto rename = [](SharedRange* range) {
    if (range->region() == 1) range->set_region(memory->name);
  };
  for (SharedRange& range : *shared.mutable_payload()) rename(&range);
  if (const auto view = memory->regions.Payload(shared); view.ok()) {
    std::string bytes(view->size_bytes(), '\0');
    view->CopyTo(0, bytes.size(), bytes.data());
    SYNCLINE_CHECK(bytes.size() <= kChunkBytesMax);
  }
  rename(shared.mutable_answer());
  if (const auto area = memory->regions.Answer(shared.answer()); area.ok()) {
    std::fill_n(reinterpret_cast<char*>(area->data), area->bytes, 'x');
    SYNCLINE_CHECK(area->owner->Contains(area->data, area->bytes));
  }
}

void CheckBlocks(const ps::ShardLayout& layout,
                 const std::vector<ps::BlockIndex>& blocks) {
  for (size_t i = 0; i < blocks.size(); ++i) {
    SYNCLINE_CHECK(blocks[i] < layout.block_count());
    SYNCLINE_CHECK(i == 0 || blocks[i - 1] < blocks[i]);
  }
}

// Keys ascend, are this shard's, and are cut into slots without a gap; returns
// where the values end.
size_t CheckRows(const ps::ShardLayout& layout,
                 const std::vector<ps::RowList>& lists, size_t end) {
  for (const ps::RowList& list : lists) {
    const ps::TableLayout& table = layout.tables()[list.table];
    size_t at = 0;
    for (const SlotRun& run : list.runs) {
      SYNCLINE_CHECK(run.first == at && run.count > 0);
      for (; at < run.first + run.count; ++at) {
        SYNCLINE_CHECK(table.map.SlotOf(list.keys[at]) == run.slot);
        SYNCLINE_CHECK(table.map.ShardOf(list.keys[at]) == 0);
        SYNCLINE_CHECK(at == 0 ||
                       table.map.Before(list.keys[at - 1], list.keys[at]));
      }
    }
    SYNCLINE_CHECK(at == list.keys.size() && at > 0);
    SYNCLINE_CHECK(list.first >= end);
    end = list.first + list.keys.size() * table.dim;
  }
  return end;
}

void CheckFacts(const ps::ShardLayout& layout, const ps::CheckedPush& push,
                size_t payload_bytes) {
  CheckBlocks(layout, push.facts.blocks);
  SYNCLINE_CHECK(push.facts.clock >= 0 && push.facts.squared_norm >= 0);
  const size_t end =
      CheckRows(layout, push.rows, layout.Offsets(push.facts.blocks).back());
  SYNCLINE_CHECK(end * ElementBytes(layout.TypeAt(push.facts.clock)) <=
                 payload_bytes);
}

class Payload : public ps::ByteSource {
 public:
  explicit Payload(const PayloadView& view) : view_(view) {}
  void CopyBytes(size_t first, size_t count, void* out) const override {
    SYNCLINE_CHECK(first + count <= view_.size_bytes());
    view_.CopyTo(first, count, out);
  }

 private:
  const PayloadView& view_;
};

void CheckHeader(const PushPullHeader& header, const PayloadView& view) {
  const Payload payload(view);
  const ps::PayloadPart part = {&payload, view.size_bytes()};
  const ps::ShardLayout& layout = LayoutOf(header.push());
  const auto push = layout.CheckPush(header.push(), part);
  if (push.ok()) CheckFacts(layout, *push, part.bytes);
  const auto pull = layout.CheckPull(header.pull(), part);
  if (pull.ok()) CheckBlocks(layout, pull->facts.blocks);
  ps::CheckedPush pushed;
  ps::CheckedPull pulled;
  if (layout.CheckPushPull(header, part, &pushed, &pulled).ok()) {
    CheckFacts(layout, pushed, part.bytes);
    CheckBlocks(layout, pulled.facts.blocks);
    CheckRows(layout, pulled.rows, layout.Offsets(pulled.facts.blocks).back());
  }
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
  syncline::SharedMemory shared;
  if (!syncline::DecodeFrame(buffer, &header, &payload, &shared).ok()) return 0;
  syncline::CheckShared(shared);
  syncline::CheckHeader(header, payload);
  std::string values(payload.size_bytes(), '\0');
  payload.CopyTo(0, values.size(), values.data());

  const grpc::ByteBuffer again =
      syncline::EncodeFrame(header, {grpc::Slice(values)});
  SYNCLINE_CHECK(syncline::DecodeFrame(again, &header, &payload).ok());
  SYNCLINE_CHECK(payload.size_bytes() == values.size());
  return 0;
}
