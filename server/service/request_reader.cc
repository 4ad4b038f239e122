#include "server/service/request_reader.h"

#include <cstdint>

#include "grpcpp/support/slice.h"
#include "server/service/compressed_payload.h"

namespace syncline::ps {
namespace {

// Rough number of bytes that a call takes besides its lists.
constexpr uint64_t kWaitingCallBytes = 1024;

}  // namespace

absl::Status RequestReader::ReadPayload(const SharedMemory& shared,
                                        absl::FunctionRef<bool()> stays,
                                        WireType type, PayloadView view,
                                        CallPayload* payload,
                                        PayloadPart* part) const {
  const bool is_shared = shared.payload_size() > 0;
  if (is_shared) {
    SYNCLINE_ASSIGN_OR_RETURN(view, shared_->Payload(shared));
    if (!stays()) {
      SYNCLINE_RETURN_IF_ERROR(CopyOut(&view, payload));
    }
  }
  if (shared.has_answer()) {
    SYNCLINE_ASSIGN_OR_RETURN(payload->answer,
                              shared_->Answer(shared.answer()));
  }
  part->bytes = view.size_bytes();
  metrics_->Received(view.size_bytes(), is_shared
                                            ? PsMetrics::Path::kSharedMemory
                                            : PsMetrics::Path::kNetwork);
  payload->fills_window = !is_shared;
  if (view.size_bytes() > 0) {
    const auto source = MakePayloadSource(std::move(view), type);
    part->source = source.get();
    payload->values = source;
  }
  return absl::OkStatus();
}

absl::Status RequestReader::CopyOut(PayloadView* view,
                                    CallPayload* payload) const {
  SYNCLINE_RETURN_IF_ERROR(
      budget_->Acquire(view->size_bytes(), &payload->hold));
  grpc::Slice copy(view->size_bytes());
  view->CopyTo(0, copy.size(), const_cast<uint8_t*>(copy.begin()));
  std::vector<grpc::Slice> slices;
  slices.push_back(std::move(copy));
  *view = PayloadView(std::move(slices));
  return absl::OkStatus();
}

absl::Status RequestReader::Expand(const PushHeader& push,
                                   absl::Span<const BlockIndex> blocks,
                                   const ShardLayout& layout,
                                   const PayloadPart& part,
                                   CallPayload* payload) const {
  if (push.block_bytes().empty()) return absl::OkStatus();
  // Room for the copy, in the place of that for the whole frame, which is given
  // back here. Until the copy is made both are there and only one is counted.
  SYNCLINE_RETURN_IF_ERROR(budget_->Acquire(part.bytes, &payload->hold));
  SYNCLINE_ASSIGN_OR_RETURN(payload->values,
                            ReadCompressedBlocks(push, blocks, layout, part));
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<CallRows>> RequestReader::HoldRows(
    std::vector<RowList> lists) const {
  if (lists.empty()) return std::shared_ptr<CallRows>();
  auto rows = std::make_shared<CallRows>();
  uint64_t bytes = 0;
  for (const RowList& list : lists) {
    bytes +=
        list.keys.size() * sizeof(int64_t) + list.runs.size() * sizeof(SlotRun);
  }
  SYNCLINE_RETURN_IF_ERROR(budget_->Acquire(bytes, &rows->hold));
  rows->lists = std::move(lists);
  return rows;
}

absl::Status RequestReader::HoldPull(const PullFacts& pull,
                                     CallPayload* payload) const {
  // The shard and its controller keep the list, each its own.
  return budget_->Acquire(
      kWaitingCallBytes + 2 * sizeof(BlockIndex) * pull.blocks.size(),
      &payload->pull_hold);
}

}  // namespace syncline::ps
