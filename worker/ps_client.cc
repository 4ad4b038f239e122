#include "worker/ps_client.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "kernels/optimizer.h"
#include "worker/message_buffer.h"
#include "worker/retry_policy.h"

namespace syncline {
namespace {

using Owner = std::shared_ptr<const void>;

// A slice over memory that `owner` keeps alive.
grpc::Slice BorrowedSlice(const float* data, int64_t count,
                          const Owner& owner) {
  return grpc::Slice(
      const_cast<float*>(data), static_cast<size_t>(count) * sizeof(float),
      [](void* shared) { delete static_cast<Owner*>(shared); },
      new Owner(owner));
}

FanoutCall::Options FanoutOptions(const PsClient::Options& options) {
  FanoutCall::Options fanout;
  fanout.job_id = options.job_id;
  fanout.peers = options.ps;
  fanout.patience = options.step_timeout;
  fanout.push_window_bytes = options.push_window_bytes;
  fanout.pull_window_bytes = options.pull_window_bytes;
  fanout.retries = options.retries;
  return fanout;
}

void Count(Counter* counter, size_t bytes) {
  if (counter != nullptr) counter->Add(static_cast<double>(bytes));
}

}  // namespace

PsClient::PsClient(const Options& options, BlockMap map, Tensors tensors)
    : options_(options),
      map_(std::move(map)),
      tensors_(std::move(tensors)),
      builder_(&map_, std::min(options.chunk_bytes, kChunkBytesMax)),
      calls_(FanoutOptions(options)) {
  SYNCLINE_CHECK(options.ps.size() == map_.shard_count());
}

absl::Status PsClient::Init(int64_t total_clocks) {
  for (uint32_t shard = 0; shard < map_.shard_count(); ++shard) {
    for (Chunk& chunk : ShardChunks(shard)) {
      InitHeader header;
      *header.mutable_caller() = MakeCaller();
      header.set_total_clocks(total_clocks);
      header.mutable_blocks()->Add(chunk.blocks.begin(), chunk.blocks.end());
      calls_.Start(
          {.shard = shard,
           .method = "Init",
           .direction = FanoutCall::Direction::kPush,
           .request = EncodeFrame(header, Slices(chunk, tensors_.values)),
           .bytes = chunk.bytes});
    }
  }
  return calls_.Wait();
}

absl::Status PsClient::Pull(int64_t clock) { return PullAll(clock, 0); }

absl::Status PsClient::PullCut(uint64_t cut_id, int64_t clock) {
  return PullAll(clock, cut_id);
}

absl::Status PsClient::BeginCut(uint64_t cut_id, int64_t clock,
                                uint32_t workers) {
  BeginCutRequest request;
  *request.mutable_caller() = MakeCaller();
  request.set_cut_id(cut_id);
  for (uint32_t rank = 0; rank < workers; ++rank) request.add_clocks(clock);
  // Shards pass the cut at different times, apart by as much as one that waits
  // for a slow worker may take; then all of them are read.
  request.set_hold_seconds(4 * absl::ToDoubleSeconds(options_.step_timeout));
  return CallAll("BeginCut", clock, ToByteBuffer(request));
}

absl::Status PsClient::EndCut(uint64_t cut_id, int64_t clock) {
  EndCutRequest request;
  *request.mutable_caller() = MakeCaller();
  request.set_cut_id(cut_id);
  return CallAll("EndCut", clock, ToByteBuffer(request));
}

void PsClient::BeginStep(const Step& step) {
  step_ = step;
  squared_norm_ = 0;
  held_.clear();
}

void PsClient::OnGradientReady(uint32_t tensor) {
  if (options_.send_norm) {
    held_.push_back(tensor);
    return;
  }
  for (const Chunk& chunk : builder_.Add(tensor)) SendGradients(chunk);
}

void PsClient::EndBackward() {
  if (step_.sample_count == 0) {
    for (uint32_t shard = 0; shard < map_.shard_count(); ++shard) {
      if (!map_.shard_blocks(shard).empty()) SendEmptyClose(shard);
    }
    return;
  }
  if (options_.send_norm) squared_norm_ = SquaredNorm();
  for (const uint32_t tensor : held_) {
    for (const Chunk& chunk : builder_.Add(tensor)) SendGradients(chunk);
  }
  for (const Chunk& chunk : builder_.Flush()) SendGradients(chunk);
}

absl::Status PsClient::Wait() { return calls_.Wait(); }

void PsClient::Cancel(const absl::Status& reason) { calls_.Cancel(reason); }

void PsClient::SendGradients(const Chunk& chunk) {
  FanoutCall::Call call;
  call.shard = chunk.shard;
  call.clock = step_.clock;
  call.bytes = chunk.bytes;
  Count(options_.pushed_bytes, chunk.bytes);
  PushHeader push = MakePushHeader(chunk.shard, chunk.blocks);
  if (step_.pull) {
    PushPullHeader header;
    *header.mutable_push() = std::move(push);
    *header.mutable_pull() = MakePullHeader(chunk.blocks, step_.clock + 1, 0);
    call.method = "PushPull";
    call.request = EncodeFrame(header, Slices(chunk, tensors_.gradients));
    call.on_response = [this, chunk](const grpc::ByteBuffer& response) {
      return StoreValues(chunk, response);
    };
  } else {
    call.method = "Push";
    call.request = EncodeFrame(push, Slices(chunk, tensors_.gradients));
  }
  calls_.Start(std::move(call));
}

void PsClient::SendEmptyClose(uint32_t shard) {
  calls_.Start({.shard = shard,
                .method = "Push",
                .direction = FanoutCall::Direction::kPush,
                .request = EncodeFrame(MakePushHeader(shard, {}), {}),
                .clock = step_.clock});
  if (!step_.pull) return;
  for (Chunk& chunk : ShardChunks(shard)) {
    StartPull(std::move(chunk), step_.clock + 1, 0);
  }
}

void PsClient::StartPull(Chunk chunk, int64_t clock, uint64_t cut_id) {
  FanoutCall::Call call;
  call.shard = chunk.shard;
  call.method = "Pull";
  call.direction = FanoutCall::Direction::kPull;
  PullHeader header = MakePullHeader(chunk.blocks, clock, cut_id);
  *header.mutable_caller() = MakeCaller();
  call.request = EncodeFrame(header, {});
  call.bytes = chunk.bytes;
  call.clock = clock;
  call.on_response =
      [this, chunk = std::move(chunk)](const grpc::ByteBuffer& response) {
        return StoreValues(chunk, response);
      };
  calls_.Start(std::move(call));
}

absl::Status PsClient::PullAll(int64_t clock, uint64_t cut_id) {
  for (uint32_t shard = 0; shard < map_.shard_count(); ++shard) {
    for (Chunk& chunk : ShardChunks(shard)) {
      StartPull(std::move(chunk), clock, cut_id);
    }
  }
  return calls_.Wait();
}

absl::Status PsClient::CallAll(const char* method, int64_t clock,
                               const grpc::ByteBuffer& request) {
  for (uint32_t shard = 0; shard < map_.shard_count(); ++shard) {
    if (map_.shard_blocks(shard).empty()) continue;
    calls_.Start({.shard = shard,
                  .method = method,
                  .direction = FanoutCall::Direction::kPush,
                  .request = request,
                  .clock = clock});
  }
  return calls_.Wait();
}

Caller PsClient::MakeCaller() const {
  Caller caller;
  caller.set_job_id(options_.job_id);
  caller.set_rank(options_.rank);
  caller.set_incarnation(options_.incarnation);
  caller.set_routing_version(options_.routing_version);
  return caller;
}

PushHeader PsClient::MakePushHeader(uint32_t shard,
                                    absl::Span<const uint32_t> blocks) const {
  PushHeader header;
  *header.mutable_caller() = MakeCaller();
  header.set_clock(step_.clock);
  header.set_sample_count(step_.sample_count);
  if (step_.sample_count > 0) {
    header.set_blocks_in_clock(
        static_cast<uint32_t>(map_.shard_blocks(shard).size()));
  }
  header.mutable_blocks()->Add(blocks.begin(), blocks.end());
  header.set_finished(step_.finished);
  header.set_squared_norm(squared_norm_);
  return header;
}

PullHeader PsClient::MakePullHeader(absl::Span<const uint32_t> blocks,
                                    int64_t clock, uint64_t cut_id) const {
  PullHeader header;
  header.set_clock(clock);
  header.set_cut_id(cut_id);
  header.mutable_blocks()->Add(blocks.begin(), blocks.end());
  header.set_wait_seconds(
      absl::ToDoubleSeconds(RetryPolicy::AttemptWait(options_.step_timeout)));
  return header;
}

std::vector<Chunk> PsClient::ShardChunks(uint32_t shard) const {
  ChunkBuilder builder(&map_, std::min(options_.chunk_bytes, kChunkBytesMax));
  std::vector<Chunk> chunks = builder.AddShard(shard);
  for (Chunk& rest : builder.Flush()) chunks.push_back(std::move(rest));
  return chunks;
}

template <typename Spans>
std::vector<grpc::Slice> PsClient::Slices(const Chunk& chunk,
                                          const Spans& tensors) const {
  std::vector<grpc::Slice> slices;
  for (const BlockRun& run : ToRuns(map_, chunk.blocks)) {
    slices.push_back(BorrowedSlice(tensors[run.tensor].data() + run.offset,
                                   run.count, tensors_.owner));
  }
  return slices;
}

double PsClient::SquaredNorm() const {
  double sum = 0;
  for (const Block& block : map_.blocks()) {
    sum += AddSquares(0, tensors_.gradients[block.tensor].data() + block.offset,
                      1.0f, static_cast<size_t>(block.count));
  }
  return sum;
}

absl::Status PsClient::StoreValues(const Chunk& chunk,
                                   const grpc::ByteBuffer& response) {
  PullResponseHeader header;
  PayloadView payload;
  SYNCLINE_RETURN_IF_ERROR(DecodeFrame(response, &header, &payload));
  if (payload.size_bytes() != chunk.bytes ||
      !std::equal(header.blocks().begin(), header.blocks().end(),
                  chunk.blocks.begin(), chunk.blocks.end())) {
    return absl::InternalError(
        absl::StrCat("answered ", header.blocks_size(), " blocks with ",
                     payload.size_bytes(), " bytes, expected ",
                     chunk.blocks.size(), " with ", chunk.bytes));
  }
  size_t offset = 0;
  for (const BlockRun& run : ToRuns(map_, chunk.blocks)) {
    const size_t bytes = static_cast<size_t>(run.count) * sizeof(float);
    payload.CopyTo(offset, bytes,
                   tensors_.values[run.tensor].data() + run.offset);
    offset += bytes;
  }
  Count(options_.pulled_bytes, payload.size_bytes());
  return absl::OkStatus();
}

}  // namespace syncline
