#include "worker/client/ps_client.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/job/step_limits.h"
#include "worker/client/block_frames.h"
#include "worker/client/row_frames.h"

namespace syncline::worker {
namespace {

// Enough for the areas of a full window each way, wherever gaps are; less where
// all dense values are less. Every byte is touched before it is used.
size_t RegionBytes(const PsClient::Options& options, const BlockMap& map) {
  const size_t most = 4 * (options.shared_window_bytes + kChunkBytesMax);
  if (options.has_tables) return most;
  int64_t elements = 0;
  for (uint32_t shard = 0; shard < map.shard_count(); ++shard) {
    elements = std::max(elements, map.shard_elements(shard));
  }
  return std::min<size_t>(most, 4 * elements * sizeof(float) + (256 << 10));
}

FanoutCall::Options FanoutOptions(const PsClient::Options& options,
                                  const BlockMap& map,
                                  const DenseTensors& tensors,
                                  const HeaderEncoder& headers) {
  FanoutCall::Options fanout;
  fanout.job_id = options.job_id;
  fanout.peers = options.ps;
  fanout.patience = options.step_timeout;
  fanout.push_window_bytes = options.push_window_bytes;
  fanout.pull_window_bytes = options.pull_window_bytes;
  fanout.on_unreachable = options.on_unreachable;
  fanout.telemetry = options.telemetry;
  fanout.shared.enabled = options.shared_memory;
  fanout.shared.caller = headers.caller();
  fanout.shared.boot_id = options.boot_id;
  fanout.shared.window_bytes = options.shared_window_bytes;
  fanout.shared.region_bytes = RegionBytes(options, map);
  // Rows wait for whole clocks, of every worker.
  fanout.shared.answers_need_later_pushes =
      options.norm_is_folded || options.has_tables;
  fanout.shared.payloads = tensors.gradient_region;
  return fanout;
}

// The job has something on the shard. A job with tables may have rows on any.
bool HasPart(const PsClient::Options& options, const BlockMap& map,
             uint32_t shard) {
  return options.has_tables || !map.shard_blocks(shard).empty();
}

std::vector<uint32_t> ShardsWithPart(const PsClient::Options& options,
                                     const BlockMap& map) {
  std::vector<uint32_t> shards;
  for (uint32_t shard = 0; shard < map.shard_count(); ++shard) {
    if (HasPart(options, map, shard)) shards.push_back(shard);
  }
  return shards;
}

}  // namespace

PsClient::PsClient(const Options& options, BlockMap map, DenseTensors tensors)
    : options_(options),
      map_(std::move(map)),
      tensors_(std::move(tensors)),
      headers_({.job_id = options.job_id,
                .rank = options.rank,
                .incarnation = options.incarnation,
                .routing_version = options.routing_version},
               options.wire_type, options.step_timeout),
      cuts_(ShardsWithPart(options, map_), options.ps, &headers_, &calls_),
      builder_(&map_, chunk_bytes(), ElementBytes(options.wire_type)),
      calls_(FanoutOptions(options, map_, tensors_, headers_)) {
  SYNCLINE_CHECK(options.ps.size() == map_.shard_count());
}

absl::Status PsClient::Init(int64_t total_clocks) {
  // Shards with rows alone have to know the clocks too, and before others may
  // push, for which they wait for the blocks.
  for (uint32_t shard = 0; shard < map_.shard_count(); ++shard) {
    if (!map_.shard_blocks(shard).empty() || !TakesPart(shard)) continue;
    FanoutCall::Call call = MakeCall(shard, "Init", 0, 0);
    call.request = EncodeFrame(headers_.MakeInit(total_clocks, {}), {});
    calls_.Start(std::move(call));
  }
  SYNCLINE_RETURN_IF_ERROR(calls_.Wait());
  for (uint32_t shard = 0; shard < map_.shard_count(); ++shard) {
    for (Chunk& chunk : ShardChunks(shard, ElementType::kFloat32)) {
      FanoutCall::Call call = MakeCall(shard, "Init", 0, chunk.bytes);
      call.request = EncodeFrame(
          headers_.MakeInit(total_clocks, chunk.blocks),
          ValueSlices(map_, chunk, tensors_.values, tensors_.owner));
      calls_.Start(std::move(call));
    }
  }
  return calls_.Wait();
}

absl::Status PsClient::Pull(int64_t clock) { return PullAll(clock, 0); }

absl::Status PsClient::PullCut(uint64_t cut_id, int64_t clock) {
  return PullAll(clock, cut_id);
}

absl::Status PsClient::PullRows(int64_t clock, uint64_t cut_id,
                                absl::Span<RowBatch* const> rows) {
  for (uint32_t shard = 0; shard < map_.shard_count(); ++shard) {
    for (const RowChunk& chunk :
         CutWanted(rows, shard, headers_.PulledType(cut_id), chunk_bytes())) {
      StartRowPull(chunk, rows, clock, cut_id);
    }
  }
  return calls_.Wait();
}

absl::Status PsClient::ScanTable(uint32_t table, int64_t dim, uint64_t cut_id,
                                 int64_t clock, RowSink sink) {
  return cuts_.ScanTable(table, dim, cut_id, clock, sink);
}

absl::Status PsClient::BeginCut(uint64_t cut_id, int64_t clock,
                                uint32_t workers,
                                std::optional<absl::Duration> hold) {
  // Shards pass the cut at different times, apart by as much as one that waits
  // for a slow worker may take; then all of them are read.
  return cuts_.Begin(cut_id, clock, workers,
                     hold.value_or(kHoldTimeouts * options_.step_timeout));
}

absl::Status PsClient::EndCut(uint64_t cut_id, int64_t clock) {
  return cuts_.End(cut_id, clock);
}

absl::Status PsClient::ReportActivity(int64_t clock, absl::string_view what,
                                      uint64_t done, uint64_t total) {
  return cuts_.ReportActivity(clock, what, done, total);
}

void PsClient::BeginStep(const Step& step) {
  step_ = step;
  {
    MutexLock lock(&mu_);
    marks_ = Marks();
  }
  squared_norm_ = 0;
  abandoned_ = false;
  held_.clear();
  for (uint32_t shard = 0; shard < map_.shard_count(); ++shard) {
    builder_.SetChunkBytesMax(shard, ChunkBytes(shard));
  }
}

void PsClient::AbandonStep(bool own_values) {
  step_.sample_count = 0;
  step_.rows = {};
  abandoned_ = true;
  if (own_values) AddCount(options_.telemetry.non_finite);
}

void PsClient::OnGradientReady(uint32_t tensor) {
  if (options_.checks_gradient && !abandoned_) {
    // While what backward has just written is in the cache.
    const absl::Span<const float> gradient = tensors_.gradients[tensor];
    if (!AllFiniteAs(options_.wire_type, gradient.data(), gradient.size())) {
      AbandonStep(/*own_values=*/true);
    }
  }
  if (options_.send_norm || options_.checks_gradient) {
    held_.push_back(tensor);
    return;
  }
  for (const Chunk& chunk : builder_.Add(tensor)) SendGradients(chunk);
}

void PsClient::PullEarly(absl::Span<RowBatch* const> next_rows,
                         int64_t min_clock) {
  early_rows_ = next_rows;
  for (uint32_t shard = 0; shard < map_.shard_count(); ++shard) {
    for (const RowChunk& chunk : CutWanted(next_rows, shard, options_.wire_type,
                                           chunk_bytes(), WantedPart::kEarly)) {
      StartRowPull(chunk, next_rows, step_.clock, 0, min_clock);
    }
  }
}

void PsClient::EndBackward(absl::Span<RowBatch* const> next_rows) {
  if (!step_.pull) next_rows = {};
  if (options_.checks_gradient &&
      !RowsAreFinite(step_.rows, options_.wire_type))
    AbandonStep(/*own_values=*/true);
  if (step_.sample_count == 0) {
    for (uint32_t shard = 0; shard < map_.shard_count(); ++shard) {
      if (TakesPart(shard)) SendEmptyClose(shard);
      for (const RowChunk& chunk :
           CutWanted(next_rows, shard, options_.wire_type, chunk_bytes())) {
        StartRowPull(chunk, next_rows, step_.clock + 1, 0);
      }
    }
    return;
  }
  if (options_.send_norm) {
    const absl::StatusOr<double> squared_norm =
        SquaredNorm(GradientOfStep(), options_.on_non_finite);
    if (!squared_norm.ok()) return calls_.Cancel(squared_norm.status());
    squared_norm_ = *squared_norm;
  }
  for (const uint32_t tensor : held_) {
    for (const Chunk& chunk : builder_.Add(tensor)) SendGradients(chunk);
  }
  for (const Chunk& chunk : builder_.Flush()) SendGradients(chunk);
  if (!options_.has_tables) return;
  for (uint32_t shard = 0; shard < map_.shard_count(); ++shard) {
    const absl::Status status = SendRows(shard, next_rows);
    if (!status.ok()) calls_.Cancel(status);
  }
}

absl::Status PsClient::Wait() {
  const absl::Time begin = MonotonicNow();
  absl::Status status = WaitForAll();
  const absl::Time end = MonotonicNow();
  MutexLock lock(&mu_);
  const absl::Time left = std::clamp(marks_.left, begin, end);
  const absl::Time readable = std::clamp(marks_.readable, left, end);
  wait_times_ = {left - begin, readable - left, end - readable};
  return status;
}

absl::Status PsClient::WaitForAll() {
  SYNCLINE_RETURN_IF_ERROR(calls_.Wait());
  std::vector<RowChunk> stale;
  {
    MutexLock lock(&mu_);
    stale.swap(stale_);
  }
  for (const RowChunk& chunk : stale) {
    StartRowPull(chunk, early_rows_, step_.clock + 1, 0);
  }
  return stale.empty() ? absl::OkStatus() : calls_.Wait();
}

bool PsClient::TakesPart(uint32_t shard) const {
  return HasPart(options_, map_, shard);
}

void PsClient::Cancel(const absl::Status& reason) { calls_.Cancel(reason); }

void PsClient::SendGradients(const Chunk& chunk) {
  FanoutCall::Call call;
  call.shard = chunk.shard;
  call.clock = step_.clock;
  call.bytes = chunk.bytes;
  call.rank = RankOf(chunk);
  AddCount(options_.telemetry.pushed_bytes, chunk.bytes);
  PushHeader push = MakePushHeader(chunk.shard, chunk.blocks);
  std::vector<grpc::Slice> gradients = GradientSlices(
      map_, chunk, options_.wire_type, tensors_.gradients, tensors_.owner);
  if (step_.pull) {
    PushPullHeader header;
    *header.mutable_push() = std::move(push);
    *header.mutable_pull() =
        headers_.MakePullPart(chunk.blocks, step_.clock + 1, 0);
    call.method = "PushPull";
    call.answer_bytes = chunk.bytes;
    call.request = EncodeFrame(header, std::move(gradients));
    call.on_response = [this, chunk](const grpc::ByteBuffer& response,
                                     absl::Time left) {
      return StoreValues(chunk, options_.wire_type, response, left);
    };
  } else {
    call.method = "Push";
    call.request = EncodeFrame(push, std::move(gradients));
    call.on_response = [this](const grpc::ByteBuffer&, absl::Time left) {
      Mark(left, left);
      return absl::OkStatus();
    };
  }
  calls_.Start(std::move(call));
}

void PsClient::SendClose(uint32_t shard) {
  calls_.Start({.shard = shard,
                .method = "Push",
                .direction = FanoutCall::Direction::kPush,
                .request = EncodeFrame(MakePushHeader(shard, {}), {}),
                .clock = step_.clock});
}

absl::Status PsClient::SendRows(uint32_t shard,
                                absl::Span<RowBatch* const> next_rows) {
  SYNCLINE_ASSIGN_OR_RETURN(const std::vector<RowChunk> pushed,
                            CutGradients(step_.rows, shard, options_.wire_type,
                                         chunk_bytes(), kChunkBytesMax));
  const std::vector<RowChunk> wanted =
      CutWanted(next_rows, shard, options_.wire_type, chunk_bytes());
  // Its samples count on this shard too, though it has nothing for it.
  if (pushed.empty() && map_.shard_blocks(shard).empty()) SendClose(shard);
  for (size_t i = 0; i < std::max(pushed.size(), wanted.size()); ++i) {
    SendRowChunk(i < pushed.size() ? &pushed[i] : nullptr,
                 i < wanted.size() ? &wanted[i] : nullptr, next_rows);
  }
  return absl::OkStatus();
}

void PsClient::SendRowChunk(const RowChunk* pushed, const RowChunk* wanted,
                            absl::Span<RowBatch* const> next_rows) {
  // Slots that are larger than a chunk may leave no room for keys.
  if (pushed != nullptr && wanted != nullptr &&
      pushed->bytes + wanted->key_bytes() > kChunkBytesMax) {
    SendRowChunk(pushed, nullptr, next_rows);
    return SendRowChunk(nullptr, wanted, next_rows);
  }
  if (pushed == nullptr) {
    return StartRowPull(*wanted, next_rows, step_.clock + 1, 0);
  }
  FanoutCall::Call call =
      MakeCall(pushed->shard, "Push", step_.clock, pushed->bytes);
  AddCount(options_.telemetry.pushed_bytes, pushed->bytes);
  std::vector<grpc::Slice> payload;
  PushHeader push = MakePushHeader(pushed->shard, {});
  AddGradients(step_.rows, *pushed, tensors_.owner, &push, &payload);
  if (wanted == nullptr) {
    call.request = EncodeFrame(push, std::move(payload));
  } else {
    PushPullHeader header;
    *header.mutable_push() = std::move(push);
    *header.mutable_pull() = headers_.MakePullPart({}, step_.clock + 1, 0);
    AddWantedKeys(next_rows, *wanted, tensors_.owner, header.mutable_pull(),
                  &payload);
    call.method = "PushPull";
    call.request = EncodeFrame(header, std::move(payload));
    call.bytes = std::max(pushed->bytes, wanted->bytes);
    call.answer_bytes = ValueBytes(next_rows, *wanted);
    call.on_response = [this, chunk = *wanted, next_rows](
                           const grpc::ByteBuffer& response, absl::Time left) {
      return StorePulledRows(chunk, next_rows, response, left,
                             std::numeric_limits<int64_t>::min());
    };
  }
  calls_.Start(std::move(call));
}

void PsClient::StartRowPull(const RowChunk& chunk,
                            absl::Span<RowBatch* const> rows, int64_t clock,
                            uint64_t cut_id, int64_t min_clock) {
  FanoutCall::Call call = MakeCall(chunk.shard, "Pull", clock, chunk.bytes);
  call.direction = FanoutCall::Direction::kPull;
  PullHeader header = headers_.MakePull({}, clock, cut_id);
  std::vector<grpc::Slice> payload;
  AddWantedKeys(rows, chunk, tensors_.owner, &header, &payload);
  call.request = EncodeFrame(header, std::move(payload));
  call.answer_bytes = ValueBytes(rows, chunk);
  call.on_response = [this, chunk, rows, min_clock](
                         const grpc::ByteBuffer& response, absl::Time left) {
    return StorePulledRows(chunk, rows, response, left, min_clock);
  };
  calls_.Start(std::move(call));
}

void PsClient::SendEmptyClose(uint32_t shard) {
  SendClose(shard);
  if (step_.pull) StartPulls(shard, step_.clock + 1, 0);
}

void PsClient::StartPulls(uint32_t shard, int64_t clock, uint64_t cut_id) {
  std::vector<Chunk> chunks = ShardChunks(shard, headers_.PulledType(cut_id));
  std::stable_sort(
      chunks.begin(), chunks.end(),
      [this](const Chunk& a, const Chunk& b) { return RankOf(a) < RankOf(b); });
  for (Chunk& chunk : chunks) StartPull(std::move(chunk), clock, cut_id);
}

void PsClient::StartPull(Chunk chunk, int64_t clock, uint64_t cut_id) {
  FanoutCall::Call call;
  call.shard = chunk.shard;
  call.method = "Pull";
  call.direction = FanoutCall::Direction::kPull;
  call.request =
      EncodeFrame(headers_.MakePull(chunk.blocks, clock, cut_id), {});
  call.bytes = chunk.bytes;
  call.answer_bytes = chunk.bytes;
  call.clock = clock;
  call.rank = RankOf(chunk);
  call.on_response = [this, chunk = std::move(chunk),
                      type = headers_.PulledType(cut_id)](
                         const grpc::ByteBuffer& response, absl::Time left) {
    return StoreValues(chunk, type, response, left);
  };
  calls_.Start(std::move(call));
}

absl::Status PsClient::PullAll(int64_t clock, uint64_t cut_id) {
  for (uint32_t shard = 0; shard < map_.shard_count(); ++shard) {
    StartPulls(shard, clock, cut_id);
    // Nothing to read, but to wait for: the first values, or the cut.
    if (map_.shard_blocks(shard).empty() && TakesPart(shard)) {
      StartPull({.shard = shard}, clock, cut_id);
    }
  }
  return calls_.Wait();
}

PushHeader PsClient::MakePushHeader(uint32_t shard,
                                    absl::Span<const uint32_t> blocks) const {
  PushHeader header = headers_.MakePush(blocks);
  header.set_clock(step_.clock);
  header.set_sample_count(step_.sample_count);
  if (step_.sample_count > 0) {
    size_t count = map_.shard_blocks(shard).size();
    for (const RowBatch* table : step_.rows) {
      count += table->ShardSlots(shard).size();
    }
    header.set_blocks_in_clock(static_cast<uint32_t>(count));
  }
  header.set_finished(step_.finished);
  header.set_squared_norm(squared_norm_);
  header.set_non_finite(abandoned_);
  return header;
}

size_t PsClient::ChunkBytes(uint32_t shard) const {
  return std::min(calls_.SharesMemory(shard) ? options_.shared_chunk_bytes
                                             : options_.chunk_bytes,
                  kChunkBytesMax);
}

std::vector<Chunk> PsClient::ShardChunks(uint32_t shard,
                                         ElementType type) const {
  ChunkBuilder builder(&map_, ChunkBytes(shard), ElementBytes(type));
  std::vector<Chunk> chunks = builder.AddShard(shard);
  for (Chunk& rest : builder.Flush()) chunks.push_back(std::move(rest));
  return chunks;
}

int64_t PsClient::RankOf(const Chunk& chunk) const {
  int64_t rank = std::numeric_limits<int64_t>::max();
  for (const uint32_t block : chunk.blocks) {
    const uint32_t tensor = map_.blocks()[block].tensor;
    rank = std::min<int64_t>(
        rank, tensors_.first_use.empty() ? tensor : tensors_.first_use[tensor]);
  }
  return rank;
}

StepGradient PsClient::GradientOfStep() const {
  return {.map = map_,
          .gradients = tensors_.gradients,
          .names = tensors_.names,
          .running_means = tensors_.running_means,
          .rows = step_.rows,
          .wire_type = options_.wire_type,
          .clock = step_.clock};
}

void PsClient::TakeNonFinite(uint32_t shard, uint64_t count) {
  if (count == 0) return;
  MutexLock lock(&mu_);
  told_non_finite_.resize(map_.shard_count());
  uint64_t& told = told_non_finite_[shard];
  if (count <= told) return;
  AddCount(options_.telemetry.non_finite, count - told);
  told = count;
}

FanoutCall::Call PsClient::MakeCall(uint32_t shard, const char* method,
                                    int64_t clock, size_t bytes) const {
  FanoutCall::Call call;
  call.shard = shard;
  call.method = method;
  call.clock = clock;
  call.bytes = bytes;
  return call;
}

absl::Status PsClient::StorePulledRows(const RowChunk& chunk,
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
  AddCount(options_.telemetry.pulled_bytes, payload.size_bytes());
  TakeNonFinite(chunk.shard, header.non_finite());
  Mark(left, left + absl::Seconds(header.waited_seconds()));
  return absl::OkStatus();
}

absl::Status PsClient::StoreValues(const Chunk& chunk, ElementType type,
                                   const grpc::ByteBuffer& response,
                                   absl::Time left) {
  PullResponseHeader header;
  PayloadView payload;
  SYNCLINE_RETURN_IF_ERROR(DecodeFrame(response, &header, &payload));
  SYNCLINE_RETURN_IF_ERROR(
      StoreBlocks(map_, chunk, type, header, payload, tensors_.values));
  AddCount(options_.telemetry.pulled_bytes, payload.size_bytes());
  TakeNonFinite(chunk.shard, header.non_finite());
  Mark(left, left + absl::Seconds(header.waited_seconds()));
  return absl::OkStatus();
}

void PsClient::Mark(absl::Time left, absl::Time readable) {
  MutexLock lock(&mu_);
  marks_.left = std::max(marks_.left, left);
  marks_.readable = std::max(marks_.readable, readable);
}

}  // namespace syncline::worker
