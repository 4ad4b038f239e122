#include "worker/client/row_steps.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "common/base/status_macros.h"
#include "common/wire/frame.h"
#include "worker/client/row_frames.h"

namespace syncline::worker {

void RowSteps::StartPulls(uint32_t shard, absl::Span<RowBatch* const> rows,
                          int64_t clock, uint64_t cut_id) {
  for (const RowChunk& chunk :
       CutWanted(rows, shard, context_.headers->PulledType(clock, cut_id),
                 context_.chunk_bytes)) {
    StartPull(chunk, rows, clock, cut_id, kAnyClock);
  }
}

void RowSteps::PullEarly(absl::Span<RowBatch* const> next_rows,
                         int64_t min_clock) {
  early_rows_ = next_rows;
  // As pulls of the open step's clock: they wait for none of its pushes.
  const int64_t clock = context_.step->clock();
  for (uint32_t shard = 0; shard < context_.map->shard_count(); ++shard) {
    for (const RowChunk& chunk :
         CutWanted(next_rows, shard, context_.headers->PulledType(clock, 0),
                   context_.chunk_bytes, WantedPart::kEarly)) {
      StartPull(chunk, next_rows, clock, 0, min_clock);
    }
  }
}

absl::Status RowSteps::Send(uint32_t shard,
                            absl::Span<RowBatch* const> next_rows) {
  SYNCLINE_ASSIGN_OR_RETURN(
      const std::vector<RowChunk> pushed,
      CutGradients(context_.step->rows(), shard,
                   context_.headers->PushedType(context_.step->clock()),
                   context_.chunk_bytes, kChunkBytesMax));
  const std::vector<RowChunk> wanted =
      CutWanted(next_rows, shard,
                context_.headers->PulledType(context_.step->next_clock(), 0),
                context_.chunk_bytes);
  // Its samples count on this shard too, though it has nothing for it.
  if (pushed.empty() && context_.map->shard_blocks(shard).empty()) {
    context_.calls->Start(context_.step->Close(shard));
  }
  for (size_t i = 0; i < std::max(pushed.size(), wanted.size()); ++i) {
    SendChunk(i < pushed.size() ? &pushed[i] : nullptr,
              i < wanted.size() ? &wanted[i] : nullptr, next_rows);
  }
  return absl::OkStatus();
}

bool RowSteps::PullStaleAgain() {
  std::vector<RowChunk> stale;
  {
    MutexLock lock(&mu_);
    stale.swap(stale_);
  }
  const int64_t next_clock = context_.step->next_clock();
  for (RowChunk& chunk : stale) {
    chunk.type = context_.headers->PulledType(next_clock, 0);
    StartPull(chunk, early_rows_, next_clock, 0, kAnyClock);
  }
  return !stale.empty();
}

void RowSteps::SendChunk(const RowChunk* pushed, const RowChunk* wanted,
                         absl::Span<RowBatch* const> next_rows) {
  // Slots that are larger than a chunk may leave no room for keys.
  if (pushed != nullptr && wanted != nullptr &&
      pushed->bytes + wanted->key_bytes() > kChunkBytesMax) {
    SendChunk(pushed, nullptr, next_rows);
    return SendChunk(nullptr, wanted, next_rows);
  }
  const PushedStep& step = *context_.step;
  if (pushed == nullptr) {
    return StartPull(*wanted, next_rows, step.next_clock(), 0, kAnyClock);
  }
  FanoutCall::Call call;
  call.shard = pushed->shard;
  call.method = "Push";
  call.clock = step.clock();
  call.bytes = pushed->bytes;
  AddCount(context_.telemetry.pushed_bytes, pushed->bytes);
  std::vector<grpc::Slice> payload;
  PushHeader push = step.Header(pushed->shard, {});
  AddGradients(step.rows(), *pushed, context_.tensors->owner, &push, &payload);
  if (wanted == nullptr) {
    call.request = EncodeFrame(push, std::move(payload));
  } else {
    PushPullHeader header;
    *header.mutable_push() = std::move(push);
    *header.mutable_pull() =
        context_.headers->MakePullPart({}, step.next_clock(), 0);
    AddWantedKeys(next_rows, *wanted, context_.tensors->owner,
                  header.mutable_pull(), &payload);
    call.method = "PushPull";
    call.request = EncodeFrame(header, std::move(payload));
    call.bytes = std::max(pushed->bytes, wanted->bytes);
    call.answer_bytes = ValueBytes(next_rows, *wanted);
    call.on_response = [this, chunk = *wanted, next_rows](
                           const grpc::ByteBuffer& response, absl::Time left) {
      return StoreValues(chunk, next_rows, response, left, kAnyClock);
    };
  }
  context_.calls->Start(std::move(call));
}

void RowSteps::StartPull(const RowChunk& chunk,
                         absl::Span<RowBatch* const> rows, int64_t clock,
                         uint64_t cut_id, int64_t min_clock) {
  FanoutCall::Call call;
  call.shard = chunk.shard;
  call.method = "Pull";
  call.direction = FanoutCall::Direction::kPull;
  call.clock = clock;
  call.bytes = chunk.bytes;
  PullHeader header =
      context_.headers->MakePull(chunk.shard, {}, clock, cut_id);
  std::vector<grpc::Slice> payload;
  AddWantedKeys(rows, chunk, context_.tensors->owner, &header, &payload);
  call.request = EncodeFrame(header, std::move(payload));
  call.answer_bytes = ValueBytes(rows, chunk);
  call.on_response = [this, chunk, rows, min_clock](
                         const grpc::ByteBuffer& response, absl::Time left) {
    return StoreValues(chunk, rows, response, left, min_clock);
  };
  context_.calls->Start(std::move(call));
}

absl::Status RowSteps::StoreValues(const RowChunk& chunk,
                                   absl::Span<RowBatch* const> rows,
                                   const grpc::ByteBuffer& response,
                                   absl::Time left, int64_t min_clock) {
  PullResponseHeader header;
  PayloadView payload;
  SYNCLINE_RETURN_IF_ERROR(DecodeFrame(response, &header, &payload));
  if (header.min_clock() < min_clock) {
    MutexLock lock(&mu_);
    stale_.push_back(chunk);
    return absl::OkStatus();
  }
  SYNCLINE_RETURN_IF_ERROR(StoreRows(rows, chunk, header, payload));
  context_.answers->OnValues(chunk.shard, header, payload.size_bytes(), left);
  return absl::OkStatus();
}

}  // namespace syncline::worker
