#include "worker/client/ps_client.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/job/step_limits.h"
#include "common/rpc/message_buffer.h"
#include "kernels/optimizer/optimizer.h"
#include "worker/client/retry_policy.h"
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
                                  const PsClient::Tensors& tensors) {
  FanoutCall::Options fanout;
  fanout.job_id = options.job_id;
  fanout.peers = options.ps;
  fanout.patience = options.step_timeout;
  fanout.push_window_bytes = options.push_window_bytes;
  fanout.pull_window_bytes = options.pull_window_bytes;
  fanout.retries = options.retries;
  fanout.held_back = options.held_back;
  fanout.on_unreachable = options.on_unreachable;
  fanout.shared.enabled = options.shared_memory;
  fanout.shared.caller.set_job_id(options.job_id);
  fanout.shared.caller.set_rank(options.rank);
  fanout.shared.caller.set_incarnation(options.incarnation);
  fanout.shared.caller.set_routing_version(options.routing_version);
  fanout.shared.boot_id = options.boot_id;
  fanout.shared.window_bytes = options.shared_window_bytes;
  fanout.shared.region_bytes = RegionBytes(options, map);
  // Rows wait for whole clocks, of every worker.
  fanout.shared.answers_need_later_pushes =
      options.norm_is_folded || options.has_tables;
  fanout.shared.payloads = tensors.gradient_region;
  fanout.shared.pushed_bytes = options.shared_pushed_bytes;
  fanout.shared.pulled_bytes = options.shared_pulled_bytes;
  fanout.shared.on_fallback = options.on_shared_fallback;
  fanout.shared.links = options.shared_links;
  return fanout;
}

WireType ToWireType(ElementType type) {
  switch (type) {
    case ElementType::kBfloat16:
      return WIRE_BFLOAT16;
    case ElementType::kFloat16:
      return WIRE_FLOAT16;
    default:
      return WIRE_FLOAT32;
  }
}

void Count(Counter* counter, size_t bytes) {
  if (counter != nullptr) counter->Add(static_cast<double>(bytes));
}

}  // namespace

PsClient::PsClient(const Options& options, BlockMap map, Tensors tensors)
    : options_(options),
      map_(std::move(map)),
      tensors_(std::move(tensors)),
      builder_(&map_, chunk_bytes(), ElementBytes(options.wire_type)),
      calls_(FanoutOptions(options, map_, tensors_)) {
  SYNCLINE_CHECK(options.ps.size() == map_.shard_count());
}

absl::Status PsClient::Init(int64_t total_clocks) {
  // Shards with rows alone have to know the clocks too, and before others may
  // push, for which they wait for the blocks.
  for (uint32_t shard = 0; shard < map_.shard_count(); ++shard) {
    if (!map_.shard_blocks(shard).empty() || !TakesPart(shard)) continue;
    InitHeader header;
    *header.mutable_caller() = MakeCaller();
    header.set_total_clocks(total_clocks);
    FanoutCall::Call call = MakeCall(shard, "Init", 0, 0);
    call.request = EncodeFrame(header, {});
    calls_.Start(std::move(call));
  }
  SYNCLINE_RETURN_IF_ERROR(calls_.Wait());
  for (uint32_t shard = 0; shard < map_.shard_count(); ++shard) {
    for (Chunk& chunk : ShardChunks(shard, ElementType::kFloat32)) {
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

absl::Status PsClient::PullRows(int64_t clock, uint64_t cut_id,
                                absl::Span<RowBatch* const> rows) {
  for (uint32_t shard = 0; shard < map_.shard_count(); ++shard) {
    for (const RowChunk& chunk :
         CutWanted(rows, shard, PulledType(cut_id), chunk_bytes())) {
      StartRowPull(chunk, rows, clock, cut_id);
    }
  }
  return calls_.Wait();
}

absl::Status PsClient::ScanTable(uint32_t table, int64_t dim, uint64_t cut_id,
                                 int64_t clock, RowSink sink) {
  std::vector<int64_t> keys;
  std::vector<float> values;
  for (uint32_t shard = 0; shard < map_.shard_count(); ++shard) {
    ScanTableHeader header;
    *header.mutable_caller() = MakeCaller();
    header.set_table(table);
    header.set_cut_id(cut_id);
    do {
      ScanTableResponseHeader answer;
      SYNCLINE_RETURN_IF_ERROR(
          ScanChunk(shard, clock, header, &answer, &keys, &values));
      if (values.size() != keys.size() * static_cast<size_t>(dim)) {
        return absl::InternalError(absl::StrCat(
            options_.ps[shard].name, " at ", options_.ps[shard].address,
            ", ScanTable of table ", table, ": ", values.size(), " values for ",
            keys.size(), " rows of ", dim));
      }
      SYNCLINE_RETURN_IF_ERROR(sink(keys, values));
      header.set_cursor(answer.next_cursor());
    } while (!header.cursor().empty());
  }
  return absl::OkStatus();
}

absl::Status PsClient::ScanChunk(uint32_t shard, int64_t clock,
                                 const ScanTableHeader& header,
                                 ScanTableResponseHeader* answer,
                                 std::vector<int64_t>* keys,
                                 std::vector<float>* values) {
  FanoutCall::Call call = MakeCall(shard, "ScanTable", clock, 0);
  call.direction = FanoutCall::Direction::kPull;
  call.request = EncodeFrame(header, {});
  call.on_response = [=](const grpc::ByteBuffer& response, absl::Time) {
    PayloadView payload;
    SYNCLINE_RETURN_IF_ERROR(DecodeFrame(response, answer, &payload));
    const size_t key_bytes = answer->rows() * sizeof(int64_t);
    if (payload.size_bytes() < key_bytes) {
      return absl::InternalError("answered fewer bytes than its keys have");
    }
    keys->resize(answer->rows());
    values->resize((payload.size_bytes() - key_bytes) / sizeof(float));
    payload.CopyTo(0, key_bytes, keys->data());
    payload.CopyTo(key_bytes, values->size() * sizeof(float), values->data());
    return absl::OkStatus();
  };
  calls_.Start(std::move(call));
  return calls_.Wait();
}

absl::Status PsClient::BeginCut(uint64_t cut_id, int64_t clock,
                                uint32_t workers,
                                std::optional<absl::Duration> hold) {
  BeginCutRequest request;
  *request.mutable_caller() = MakeCaller();
  request.set_cut_id(cut_id);
  for (uint32_t rank = 0; rank < workers; ++rank) request.add_clocks(clock);
  // Shards pass the cut at different times, apart by as much as one that waits
  // for a slow worker may take; then all of them are read.
  request.set_hold_seconds(absl::ToDoubleSeconds(
      hold.value_or(kHoldTimeouts * options_.step_timeout)));
  return CallAll("BeginCut", clock, ToByteBuffer(request));
}

absl::Status PsClient::EndCut(uint64_t cut_id, int64_t clock) {
  EndCutRequest request;
  *request.mutable_caller() = MakeCaller();
  request.set_cut_id(cut_id);
  return CallAll("EndCut", clock, ToByteBuffer(request));
}

absl::Status PsClient::ReportActivity(int64_t clock, absl::string_view what,
                                      uint64_t done, uint64_t total) {
  ActivityRequest request;
  *request.mutable_caller() = MakeCaller();
  request.set_clock(clock);
  request.set_what(std::string(what));
  request.set_done(done);
  request.set_total(total);
  return CallAll("ReportActivity", clock, ToByteBuffer(request));
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
  if (own_values) Count(options_.non_finite, 1);
}

void PsClient::OnGradientReady(uint32_t tensor) {
  if (options_.checks_gradient && !abandoned_) {
    // While what backward has just written is in the cache.
    const absl::Span<const float> gradient = tensors_.gradients[tensor];
    if (!AllFiniteAs(options_.wire_type, gradient.data(), gradient.size())) {
      AbandonStep();
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
  if (options_.checks_gradient && !RowsAreFinite()) AbandonStep();
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
    const absl::StatusOr<double> squared_norm = SquaredNorm();
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

void PsClient::Cancel(const absl::Status& reason) { calls_.Cancel(reason); }

void PsClient::SendGradients(const Chunk& chunk) {
  FanoutCall::Call call;
  call.shard = chunk.shard;
  call.clock = step_.clock;
  call.bytes = chunk.bytes;
  call.rank = RankOf(chunk);
  Count(options_.pushed_bytes, chunk.bytes);
  PushHeader push = MakePushHeader(chunk.shard, chunk.blocks);
  if (step_.pull) {
    PushPullHeader header;
    *header.mutable_push() = std::move(push);
    *header.mutable_pull() = MakePullHeader(chunk.blocks, step_.clock + 1, 0);
    call.method = "PushPull";
    call.answer_bytes = chunk.bytes;
    call.request = EncodeFrame(header, Gradients(chunk));
    call.on_response = [this, chunk](const grpc::ByteBuffer& response,
                                     absl::Time left) {
      return StoreValues(chunk, options_.wire_type, response, left);
    };
  } else {
    call.method = "Push";
    call.request = EncodeFrame(push, Gradients(chunk));
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
  Count(options_.pushed_bytes, pushed->bytes);
  std::vector<grpc::Slice> payload;
  PushHeader push = MakePushHeader(pushed->shard, {});
  AddGradients(step_.rows, *pushed, tensors_.owner, &push, &payload);
  if (wanted == nullptr) {
    call.request = EncodeFrame(push, std::move(payload));
  } else {
    PushPullHeader header;
    *header.mutable_push() = std::move(push);
    *header.mutable_pull() = MakePullHeader({}, step_.clock + 1, 0);
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
  PullHeader header = MakePullHeader({}, clock, cut_id);
  *header.mutable_caller() = MakeCaller();
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
  std::vector<Chunk> chunks = ShardChunks(shard, PulledType(cut_id));
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
  PullHeader header = MakePullHeader(chunk.blocks, clock, cut_id);
  *header.mutable_caller() = MakeCaller();
  call.request = EncodeFrame(header, {});
  call.bytes = chunk.bytes;
  call.answer_bytes = chunk.bytes;
  call.clock = clock;
  call.rank = RankOf(chunk);
  call.on_response = [this, chunk = std::move(chunk),
                      type = PulledType(cut_id)](
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

absl::Status PsClient::CallAll(const char* method, int64_t clock,
                               const grpc::ByteBuffer& request) {
  for (uint32_t shard = 0; shard < map_.shard_count(); ++shard) {
    if (!TakesPart(shard)) continue;
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
    size_t count = map_.shard_blocks(shard).size();
    for (const RowBatch* table : step_.rows) {
      count += table->ShardSlots(shard).size();
    }
    header.set_blocks_in_clock(static_cast<uint32_t>(count));
  }
  header.mutable_blocks()->Add(blocks.begin(), blocks.end());
  header.set_finished(step_.finished);
  header.set_squared_norm(squared_norm_);
  header.set_non_finite(abandoned_);
  header.set_wire_type(ToWireType(options_.wire_type));
  return header;
}

PullHeader PsClient::MakePullHeader(absl::Span<const uint32_t> blocks,
                                    int64_t clock, uint64_t cut_id) const {
  PullHeader header;
  header.set_clock(clock);
  header.set_cut_id(cut_id);
  header.set_wire_type(ToWireType(PulledType(cut_id)));
  header.mutable_blocks()->Add(blocks.begin(), blocks.end());
  header.set_wait_seconds(absl::ToDoubleSeconds(
      RetryPolicy::LongestAttempt(options_.step_timeout)));
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

template <typename Spans>
std::vector<grpc::Slice> PsClient::Slices(const Chunk& chunk,
                                          const Spans& tensors) const {
  std::vector<grpc::Slice> slices;
  for (const BlockRun& run : ToRuns(map_, chunk.blocks)) {
    slices.push_back(BorrowedSlice(
        tensors[run.tensor].data() + run.offset,
        static_cast<size_t>(run.count) * sizeof(float), tensors_.owner));
  }
  return slices;
}

std::vector<grpc::Slice> PsClient::Gradients(const Chunk& chunk) const {
  if (options_.wire_type == ElementType::kFloat32) {
    return Slices(chunk, tensors_.gradients);
  }
  grpc::Slice narrow(chunk.bytes);
  char* out = reinterpret_cast<char*>(const_cast<uint8_t*>(narrow.begin()));
  for (const BlockRun& run : ToRuns(map_, chunk.blocks)) {
    const size_t count = static_cast<size_t>(run.count);
    Narrow(options_.wire_type,
           tensors_.gradients[run.tensor].data() + run.offset, out, count);
    out += count * ElementBytes(options_.wire_type);
  }
  return {std::move(narrow)};
}

absl::StatusOr<double> PsClient::SquaredNorm() const {
  double sum = 0;
  std::string bad;
  const auto add = [&](const float* gradient, size_t count, bool is_clipped,
                       auto name) {
    const double squares = AddSquares(0, gradient, 1.0f, count);
    if (std::isfinite(squares) &&
        (options_.wire_type == ElementType::kFloat32 ||
         AllFiniteAs(options_.wire_type, gradient, count))) {
      if (is_clipped) sum += squares;
    } else if (bad.empty()) {
      size_t at = 0;
      while (AllFiniteAs(options_.wire_type, gradient + at, 1)) ++at;
      bad = name(at);
    }
  };
  for (const Block& block : map_.blocks()) {
    add(tensors_.gradients[block.tensor].data() + block.offset,
        static_cast<size_t>(block.count), !IsRunningMean(block.tensor),
        [&](size_t at) {
          return absl::StrCat("element ", block.offset + at, " of ",
                              tensors_.names.empty()
                                  ? absl::StrCat("tensor ", block.tensor)
                                  : tensors_.names[block.tensor]);
        });
  }
  for (const RowBatch* table : step_.rows) {
    const size_t dim = static_cast<size_t>(table->dim());
    for (size_t row = 0; row < table->keys().size(); ++row) {
      add(table->gradient(row), dim, true, [&](size_t) {
        return absl::StrCat("key ", table->keys()[row], " of table ",
                            table->name());
      });
    }
  }
  if (bad.empty() || options_.on_non_finite != OnNonFinite::kFailJob) {
    return sum;
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "the gradient of clock ", step_.clock, " is not finite: ", bad));
}

bool PsClient::RowsAreFinite() const {
  for (const RowBatch* table : step_.rows) {
    if (table->keys().empty()) continue;
    if (!AllFiniteAs(
            options_.wire_type, table->gradient(0),
            table->keys().size() * static_cast<size_t>(table->dim()))) {
      return false;
    }
  }
  return true;
}

void PsClient::TakeNonFinite(uint32_t shard, uint64_t count) {
  if (count == 0) return;
  MutexLock lock(&mu_);
  told_non_finite_.resize(map_.shard_count());
  uint64_t& told = told_non_finite_[shard];
  if (count <= told) return;
  Count(options_.non_finite, count - told);
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
  Count(options_.pulled_bytes, payload.size_bytes());
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
    const size_t count = static_cast<size_t>(run.count);
    CopyValues(payload, type, offset, count,
               tensors_.values[run.tensor].data() + run.offset);
    offset += count * ElementBytes(type);
  }
  Count(options_.pulled_bytes, payload.size_bytes());
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
