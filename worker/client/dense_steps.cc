#include "worker/client/dense_steps.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "common/base/status_macros.h"
#include "common/regime/compression_message.h"
#include "common/wire/compression.h"
#include "common/wire/frame.h"
#include "worker/client/block_frames.h"

namespace syncline::worker {

DenseSteps::DenseSteps(const ClientContext* context)
    : context_(*context), builder_(context->map, context->chunk_bytes) {}

void DenseSteps::StartInit(int64_t total_clocks) {
  for (uint32_t shard = 0; shard < context_.map->shard_count(); ++shard) {
    for (const Chunk& chunk : ShardChunks(shard, ElementType::kFloat32)) {
      context_.calls->Start(
          {.shard = shard,
           .method = "Init",
           .request = EncodeFrame(
               context_.headers->MakeInit(shard, total_clocks, chunk.blocks),
               ValueSlices(*context_.map, chunk, context_.tensors->values,
                           context_.tensors->owner)),
           .bytes = chunk.bytes});
    }
  }
}

void DenseSteps::StartPulls(uint32_t shard, int64_t clock, uint64_t cut_id) {
  std::vector<Chunk> chunks =
      ShardChunks(shard, context_.headers->PulledType(clock, cut_id));
  std::stable_sort(
      chunks.begin(), chunks.end(),
      [this](const Chunk& a, const Chunk& b) { return RankOf(a) < RankOf(b); });
  for (Chunk& chunk : chunks) StartPull(std::move(chunk), clock, cut_id);
}

void DenseSteps::StartEmptyPull(uint32_t shard, int64_t clock,
                                uint64_t cut_id) {
  StartPull({.shard = shard}, clock, cut_id);
}

void DenseSteps::BeginStep(bool changes) {
  pulls_changes_ = changes;
  const PushedStep& step = *context_.step;
  compressed_ = context_.compressor != nullptr &&
                context_.headers->Compression(step.clock()).any();
  pushed_type_ = compressed_ ? ElementType::kFloat32
                             : context_.headers->PushedType(step.clock());
  pulled_type_ = context_.headers->PulledType(step.next_clock(), 0);
  builder_.SetElementBytes(
      std::max(ElementBytes(pushed_type_), ElementBytes(pulled_type_)));
  for (uint32_t shard = 0; shard < context_.map->shard_count(); ++shard) {
    builder_.SetChunkBytesMax(shard, ChunkBytes(shard));
  }
}

void DenseSteps::Send(uint32_t tensor) {
  for (Chunk& chunk : builder_.Add(tensor)) SendGradients(std::move(chunk));
}

void DenseSteps::SendRest() {
  for (Chunk& chunk : builder_.Flush()) SendGradients(std::move(chunk));
}

void DenseSteps::StartEmptyClose(uint32_t shard) {
  context_.calls->Start(context_.step->Close(shard));
  if (context_.step->pulls()) {
    StartPulls(shard, context_.step->next_clock(), 0);
  }
}

void DenseSteps::SendGradients(Chunk chunk) {
  const PushedStep& step = *context_.step;
  FanoutCall::Call call;
  call.shard = chunk.shard;
  call.clock = step.clock();
  call.rank = RankOf(chunk);
  const size_t pulled_bytes = PulledBytes(chunk);
  PushHeader push = step.Header(chunk.shard, chunk.blocks);
  std::vector<grpc::Slice> gradients = Gradients(chunk, &push);
  size_t pushed_bytes = 0;
  for (const grpc::Slice& slice : gradients) pushed_bytes += slice.size();
  AddCount(context_.telemetry.pushed_bytes, pushed_bytes);
  if (context_.counts != nullptr) {
    context_.counts->gradient_bytes += pushed_bytes;
    context_.counts->gradient_float32_bytes +=
        BytesAs(ElementType::kFloat32, chunk);
  }
  call.bytes = std::max(pushed_bytes, step.pulls() ? pulled_bytes : 0);
  if (step.pulls()) {
    PushPullHeader header;
    *header.mutable_push() = std::move(push);
    *header.mutable_pull() = context_.headers->MakePullPart(
        chunk.blocks, step.next_clock(), 0, pulls_changes_);
    call.method = "PushPull";
    call.answer_bytes = pulled_bytes;
    call.request = EncodeFrame(header, std::move(gradients));
    const size_t float32_bytes = BytesAs(ElementType::kFloat32, chunk);
    chunk.bytes = pulled_bytes;
    call.on_response = [this, chunk = std::move(chunk), float32_bytes,
                        type = pulled_type_, changes = pulls_changes_](
                           const grpc::ByteBuffer& response, absl::Time left) {
      CountValues(float32_bytes, chunk.bytes);
      return StoreValues(chunk, type, changes, response, left);
    };
  } else {
    call.method = "Push";
    call.request = EncodeFrame(push, std::move(gradients));
    call.on_response = [this](const grpc::ByteBuffer&, absl::Time left) {
      context_.answers->OnPushed(left);
      return absl::OkStatus();
    };
  }
  context_.calls->Start(std::move(call));
}

std::vector<grpc::Slice> DenseSteps::Gradients(const Chunk& chunk,
                                               PushHeader* push) {
  if (compressed_) {
    push->set_compression(
        KindOf(context_.headers->Compression(context_.step->clock())));
    return CompressedSlices(chunk, *context_.compressor, push);
  }
  return WholeGradients(chunk);
}

std::vector<grpc::Slice> DenseSteps::WholeGradients(const Chunk& chunk) const {
  const DenseTensors& tensors = *context_.tensors;
  Chunk as_pushed = chunk;
  as_pushed.bytes = BytesAs(pushed_type_, chunk);
  if (context_.compressor == nullptr || !context_.compressor->sends_all()) {
    return GradientSlices(*context_.map, as_pushed, pushed_type_,
                          tensors.gradients, tensors.owner);
  }
  std::vector<absl::Span<const float>> sent(tensors.gradients.begin(),
                                            tensors.gradients.end());
  for (uint32_t tensor = 0; tensor < sent.size(); ++tensor) {
    const absl::Span<const float> whole = context_.compressor->whole(tensor);
    if (!whole.empty()) sent[tensor] = whole;
  }
  const auto owner = std::make_shared<
      std::pair<std::shared_ptr<const void>, std::shared_ptr<const void>>>(
      tensors.owner, context_.compressor);
  return GradientSlices(*context_.map, as_pushed, pushed_type_, sent, owner);
}

void DenseSteps::CountValues(size_t float32_bytes, size_t bytes) const {
  if (context_.counts == nullptr) return;
  context_.counts->value_bytes += bytes;
  context_.counts->value_float32_bytes += float32_bytes;
}

void DenseSteps::StartPull(Chunk chunk, int64_t clock, uint64_t cut_id) {
  FanoutCall::Call call;
  call.shard = chunk.shard;
  call.method = "Pull";
  call.direction = FanoutCall::Direction::kPull;
  call.request = EncodeFrame(
      context_.headers->MakePull(chunk.shard, chunk.blocks, clock, cut_id), {});
  call.bytes = chunk.bytes;
  call.answer_bytes = chunk.bytes;
  call.clock = clock;
  call.rank = RankOf(chunk);
  call.on_response = [this, chunk = std::move(chunk), cut_id,
                      type = context_.headers->PulledType(clock, cut_id)](
                         const grpc::ByteBuffer& response, absl::Time left) {
    if (cut_id == 0) {
      CountValues(chunk.bytes / ElementBytes(type) * sizeof(float),
                  chunk.bytes);
    }
    return StoreValues(chunk, type, /*changes=*/false, response, left);
  };
  context_.calls->Start(std::move(call));
}

size_t DenseSteps::ChunkBytes(uint32_t shard) const {
  return context_.calls->SharesMemory(shard) ? context_.shared_chunk_bytes
                                             : context_.chunk_bytes;
}

size_t DenseSteps::BytesAs(ElementType type, const Chunk& chunk) const {
  return chunk.bytes / builder_.element_bytes() * ElementBytes(type);
}

size_t DenseSteps::PulledBytes(const Chunk& chunk) const {
  if (!pulls_changes_) return BytesAs(pulled_type_, chunk);
  size_t bytes = 0;
  for (const uint32_t block : chunk.blocks) {
    bytes += Int8Bytes(static_cast<size_t>(context_.map->blocks()[block].count),
                       context_.headers->ChangeGroup());
  }
  return bytes;
}

std::vector<Chunk> DenseSteps::ShardChunks(uint32_t shard,
                                           ElementType type) const {
  ChunkBuilder builder(context_.map, ChunkBytes(shard), ElementBytes(type));
  std::vector<Chunk> chunks = builder.AddShard(shard);
  for (Chunk& rest : builder.Flush()) chunks.push_back(std::move(rest));
  return chunks;
}

int64_t DenseSteps::RankOf(const Chunk& chunk) const {
  const std::vector<uint32_t>& first_use = context_.tensors->first_use;
  int64_t rank = std::numeric_limits<int64_t>::max();
  for (const uint32_t block : chunk.blocks) {
    const uint32_t tensor = context_.map->blocks()[block].tensor;
    rank =
        std::min<int64_t>(rank, first_use.empty() ? tensor : first_use[tensor]);
  }
  return rank;
}

absl::Status DenseSteps::StoreValues(const Chunk& chunk, ElementType type,
                                     bool changes,
                                     const grpc::ByteBuffer& response,
                                     absl::Time left) {
  PullResponseHeader header;
  PayloadView payload;
  SYNCLINE_RETURN_IF_ERROR(DecodeFrame(response, &header, &payload));
  SYNCLINE_RETURN_IF_ERROR(
      changes ? AddChanges(*context_.map, chunk, header, payload,
                           context_.tensors->values)
              : StoreBlocks(*context_.map, chunk, type, header, payload,
                            context_.tensors->values));
  context_.answers->OnValues(chunk.shard, header, payload.size_bytes(), left);
  return absl::OkStatus();
}

}  // namespace syncline::worker
