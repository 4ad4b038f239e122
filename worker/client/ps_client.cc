#include "worker/client/ps_client.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/job/step_limits.h"
#include "common/wire/frame.h"
#include "worker/client/checkpoint_calls.h"
#include "worker/exchange/gradient_norm.h"

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

// At some clocks no shard answers before it has the whole gradient: SYNC with a
// norm that is reduced, or with a set of workers that is fixed. Any job may
// come to SYNC while it runs.
bool AnswersWholeGradients(const PsClient::Options& options) {
  return options.clip_norm || options.trust_ratio || options.leaves_behind ||
         options.on_non_finite == OnNonFinite::kSkipStep;
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
  fanout.shared.caller = headers.CallerOf(0);
  fanout.shared.boot_id = options.boot_id;
  fanout.shared.window_bytes = options.shared_window_bytes;
  fanout.shared.region_bytes = RegionBytes(options, map);
  // Rows wait for whole clocks, of every worker. With leases the bound of a
  // worker's next clock may be behind the clock that another is pushing.
  fanout.shared.answers_need_later_pushes =
      AnswersWholeGradients(options) || options.has_tables || options.leases;
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
                .routing_version = options.routing_version,
                .pass = options.pass},
               options.carry_over != nullptr
                   ? options.carry_over->regimes.value_or(options.regimes)
                   : options.regimes,
               options.step_timeout),
      step_(&headers_, &map_),
      carry_over_(options.carry_over != nullptr
                      ? options.carry_over
                      : std::make_shared<CarryOver>()),
      regimes_(carry_over_->regimes.value_or(options.regimes)),
      answers_(map_.shard_count(), options.telemetry, &carry_over_->non_finite),
      context_(MakeContext()),
      cuts_(CutOptions(), &headers_, &calls_, &carry_over_->cuts),
      dense_(&context_),
      rows_(&context_),
      calls_(FanoutOptions(options, map_, tensors_, headers_)) {
  SYNCLINE_CHECK(options.ps.size() == map_.shard_count());
}

PsClient::~PsClient() { NotePassedCheckpoint(); }

CutCalls::Options PsClient::CutOptions() const {
  return {.job_id = options_.job_id,
          .shards = ShardsWithPart(options_, map_),
          .peers = options_.ps,
          .series = options_.cut_series,
          .spread = regimes_.CutSpread(),
          .equal_clocks = options_.leases,
          .patience = options_.step_timeout};
}

ClientContext PsClient::MakeContext() {
  return {.map = &map_,
          .tensors = &tensors_,
          .headers = &headers_,
          .step = &step_,
          .answers = &answers_,
          .calls = &calls_,
          .telemetry = options_.telemetry,
          .counts = options_.counts,
          .chunk_bytes = std::min(options_.chunk_bytes, kChunkBytesMax),
          .shared_chunk_bytes =
              std::min(options_.shared_chunk_bytes, kChunkBytesMax)};
}

void PsClient::Cancel(const absl::Status& reason) { calls_.Cancel(reason); }

// --- The state between steps ---

absl::Status PsClient::Init(int64_t total_clocks) {
  // Shards with rows alone have to know the clocks too, and before others may
  // push, for which they wait for the blocks.
  for (uint32_t shard = 0; shard < map_.shard_count(); ++shard) {
    if (!map_.shard_blocks(shard).empty() || !TakesPart(shard)) continue;
    calls_.Start({.shard = shard,
                  .method = "Init",
                  .request = EncodeFrame(
                      headers_.MakeInit(shard, total_clocks, {}), {})});
  }
  SYNCLINE_RETURN_IF_ERROR(calls_.Wait());
  dense_.StartInit(total_clocks);
  return calls_.Wait();
}

absl::Status PsClient::Pull(int64_t clock) { return PullAll(clock, 0); }

absl::Status PsClient::PullAll(int64_t clock, uint64_t cut) {
  const uint64_t cut_id = cuts_.WireId(cut);
  values_of_.reset();
  for (uint32_t shard = 0; shard < map_.shard_count(); ++shard) {
    dense_.StartPulls(shard, clock, cut_id);
    // Nothing to read, but to wait for: the first values, or the cut.
    if (map_.shard_blocks(shard).empty() && TakesPart(shard)) {
      dense_.StartEmptyPull(shard, clock, cut_id);
    }
  }
  SYNCLINE_RETURN_IF_ERROR(WaitForNews());
  if (cut == 0) values_of_ = clock;
  return absl::OkStatus();
}

absl::Status PsClient::PullRows(int64_t clock, uint64_t cut_id,
                                absl::Span<RowBatch* const> rows) {
  for (uint32_t shard = 0; shard < map_.shard_count(); ++shard) {
    rows_.StartPulls(shard, rows, clock, cuts_.WireId(cut_id));
  }
  return calls_.Wait();
}

absl::Status PsClient::ReportActivity(int64_t clock, absl::string_view what,
                                      uint64_t done, uint64_t total) {
  return cuts_.ReportActivity(clock, what, done, total);
}

// --- Cuts ---

absl::StatusOr<std::vector<int64_t>> PsClient::BeginCut(const Cut& cut) {
  // Shards pass the cut at different times, apart by as much as one that waits
  // for a slow worker may take; then all of them are read.
  const absl::Duration hold =
      cut.hold.value_or(kHoldTimeouts * options_.step_timeout);
  if (options_.groups.count() == 0) return cuts_.Begin(cut, hold);
  Cut of_groups = cut;
  of_groups.clocks = options_.groups.ToGroups(cut.clocks);
  SYNCLINE_ASSIGN_OR_RETURN(const std::vector<int64_t> agreed,
                            cuts_.Begin(of_groups, hold));
  return options_.groups.ToWorkers(agreed);
}

absl::Status PsClient::ReachCut(absl::FunctionRef<absl::Status()> pull) {
  if (make_returned_ == nullptr) return pull();
  while (true) {
    // The answers at the cut have those that are not made yet.
    answers_.TakeReturned();
    SYNCLINE_RETURN_IF_ERROR(pull());
    if (!answers_.HasReturned()) return absl::OkStatus();
    SYNCLINE_RETURN_IF_ERROR(make_returned_());
  }
}

absl::Status PsClient::PullCut(uint64_t cut_id, int64_t clock) {
  return ReachCut([&] { return PullAll(clock, cut_id); });
}

absl::Status PsClient::ScanTable(uint32_t table, int64_t dim, uint64_t cut_id,
                                 int64_t clock, RowSink sink) {
  return cuts_.ScanTable(table, dim, cuts_.WireId(cut_id), clock, sink);
}

absl::Status PsClient::EndCut(uint64_t cut_id, int64_t clock) {
  return cuts_.End(cut_id, clock);
}

absl::Status PsClient::AwaitCut(uint64_t cut_id, int64_t clock) {
  const uint64_t id = cuts_.WireId(cut_id);
  return ReachCut([&] {
    for (uint32_t shard = 0; shard < map_.shard_count(); ++shard) {
      if (TakesPart(shard)) dense_.StartEmptyPull(shard, clock, id);
    }
    return WaitForNews();
  });
}

absl::Status PsClient::CommitRegime(uint64_t cut_id, int64_t clock) {
  return cuts_.Commit(cut_id, clock);
}

absl::StatusOr<RegimeSchedule> PsClient::FollowRegimes(int64_t clock) {
  // A shard answers when its cut has ended, if one is announced there.
  for (uint32_t shard = 0; shard < map_.shard_count(); ++shard) {
    if (TakesPart(shard)) dense_.StartEmptyPull(shard, clock, /*cut_id=*/0);
  }
  SYNCLINE_RETURN_IF_ERROR(calls_.Wait());
  SYNCLINE_ASSIGN_OR_RETURN(regimes_, cuts_.GetRegimes(clock));
  headers_.Follow(regimes_);
  carry_over_->regimes = regimes_;
  answers_.ForgetRegimes();
  cuts_.UseSpread(regimes_.CutSpread());
  return regimes_;
}

std::unique_ptr<CheckpointWriting> PsClient::OpenCheckpoint(uint64_t cut_id) {
  CheckpointCalls::Options options;
  options.cut_id = cuts_.WireId(cut_id);
  carry_over_->passed = {.cut = options.cut_id, .behind = begun_};
  options.job_id = options_.job_id;
  options.own_folders = options_.own_checkpoint_folders;
  for (uint32_t shard = 0; shard < map_.shard_count(); ++shard) {
    options.shards.push_back({.peer = options_.ps[shard],
                              .caller = headers_.CallerOf(shard),
                              .takes_part = TakesPart(shard)});
  }
  return std::make_unique<CheckpointCalls>(std::move(options));
}

// --- A step ---

void PsClient::BeginStep(const Step& step) {
  UndoSkippedStep();
  SaveResiduals(step.clock);
  step_.Begin(step);
  regime_ = regimes_.At(step.clock);
  FollowCompression();
  begun_ = step.clock;
  answers_.BeginStep();
  held_.clear();
  dense_.BeginStep(PullsChanges());
}

void PsClient::NotePassedCheckpoint() {
  const uint64_t cut = answers_.CheckpointCut();
  if (cut > carry_over_->passed.cut) {
    carry_over_->passed = {.cut = cut, .behind = begun_};
  }
}

void PsClient::SaveResiduals(int64_t clock) {
  NotePassedCheckpoint();
  // The same step again, which the next client is given where the routing has
  // changed: the cut is behind it.
  if (clock <= carry_over_->passed.behind) return;
  const uint64_t cut = std::exchange(carry_over_->passed, {}).cut;
  if (cut == 0 || options_.residuals == nullptr || compressor() == nullptr ||
      !regimes_.At(clock).sync()) {
    return;
  }
  options_.residuals->Save(cut, clock, *compressor());
}

void PsClient::FollowCompression() {
  const bool may_be_undone =
      options_.compressor.may_be_undone ||
      (options_.on_non_finite == OnNonFinite::kSkipStep && regimes_.AnySync());
  if (compressor() != nullptr) {
    compressor()->Follow(regime_.compression, may_be_undone);
  } else if (Compresses()) {
    GradientCompressor::Options options = options_.compressor;
    options.compression = regime_.compression;
    options.may_be_undone = may_be_undone;
    if (options.running_means.empty()) {
      options.running_means = tensors_.running_means;
    }
    carry_over_->compressor =
        std::make_shared<GradientCompressor>(std::move(options), map_);
  }
  context_.compressor = carry_over_->compressor;
}

void PsClient::PullEarly(absl::Span<RowBatch* const> next_rows,
                         int64_t min_clock) {
  rows_.PullEarly(next_rows, min_clock);
}

void PsClient::AbandonStep(bool own_values) {
  step_.Abandon();
  if (own_values) AddCount(options_.telemetry.non_finite);
}

void PsClient::OnGradientReady(uint32_t tensor) {
  if (ChecksGradient() && !step_.abandoned()) {
    // While what backward has just written is in the cache.
    const absl::Span<const float> gradient = tensors_.gradients[tensor];
    if (!AllFiniteAs(DenseType(), gradient.data(), gradient.size())) {
      AbandonStep(/*own_values=*/true);
    }
  }
  if (HoldsGradient()) {
    held_.push_back(tensor);
  } else {
    SendTensor(tensor);
  }
}

void PsClient::SendTensor(uint32_t tensor) {
  if (compressor() != nullptr) {
    compressor()->BeginStep(step_.clock(), step_.sample_count());
    compressor()->Compress(tensor, tensors_.gradients[tensor]);
  }
  dense_.Send(tensor);
}

void PsClient::UndoSkippedStep() {
  if (compressor() == nullptr || compressor()->clock() < 0) return;
  if (was_skipped(compressor()->clock())) compressor()->Undo();
}

void PsClient::EndBackward(absl::Span<RowBatch* const> next_rows) {
  if (!step_.pulls()) next_rows = {};
  if (ChecksGradient() && !RowsAreFinite(step_.rows(), regime_.wire_type)) {
    AbandonStep(/*own_values=*/true);
  }
  // Shard 0 says in its answers which step the rank makes later, and might be
  // asked for no value of the next one.
  if (options_.leases && step_.pulls() && map_.shard_blocks(0).empty()) {
    dense_.StartEmptyPull(/*shard=*/0, step_.next_clock(), /*cut_id=*/0);
  }
  if (!step_.has_gradient()) return CloseEmpty(next_rows);
  const absl::Status status = SendStep(next_rows);
  if (!status.ok()) calls_.Cancel(status);
}

void PsClient::CloseEmpty(absl::Span<RowBatch* const> next_rows) {
  for (uint32_t shard = 0; shard < map_.shard_count(); ++shard) {
    if (TakesPart(shard)) dense_.StartEmptyClose(shard);
    rows_.StartPulls(shard, next_rows, step_.next_clock(), 0);
  }
}

absl::Status PsClient::SendStep(absl::Span<RowBatch* const> next_rows) {
  if (SendsNorm()) {
    SYNCLINE_ASSIGN_OR_RETURN(const double squared_norm, NormOf(step_.rows()));
    step_.SetSquaredNorm(squared_norm);
  }
  if (ClipsBefore()) SYNCLINE_RETURN_IF_ERROR(ClipBefore());
  for (const uint32_t tensor : held_) SendTensor(tensor);
  dense_.SendRest();
  if (!options_.has_tables) return absl::OkStatus();
  for (uint32_t shard = 0; shard < map_.shard_count(); ++shard) {
    SYNCLINE_RETURN_IF_ERROR(rows_.Send(shard, next_rows));
  }
  return absl::OkStatus();
}

absl::StatusOr<double> PsClient::NormOf(
    absl::Span<RowBatch* const> rows) const {
  return SquaredNorm({.map = map_,
                      .gradients = tensors_.gradients,
                      .names = tensors_.names,
                      .running_means = tensors_.running_means,
                      .rows = rows,
                      .wire_type = DenseType(),
                      .clock = step_.clock()},
                     options_.on_non_finite);
}

absl::Status PsClient::ClipBefore() {
  SYNCLINE_ASSIGN_OR_RETURN(const double squares, NormOf(/*rows=*/{}));
  const double norm =
      std::sqrt(squares) / static_cast<double>(step_.sample_count());
  compressor()->BeginStep(step_.clock(), step_.sample_count());
  compressor()->Clip(norm, options_.clip_before_compression,
                     /*averaged=*/regime_.sync());
  return absl::OkStatus();
}

absl::Status PsClient::Wait() {
  const absl::Time begin = MonotonicNow();
  absl::Status status = WaitForAll();
  values_of_.reset();
  if (status.ok()) {
    if (step_.pulls()) values_of_ = step_.next_clock();
    UndoSkippedStep();
  }
  wait_times_ = answers_.TimesOf(begin, MonotonicNow());
  return status;
}

absl::Status PsClient::WaitForNews() {
  SYNCLINE_RETURN_IF_ERROR(calls_.Wait());
  UndoSkippedStep();
  return absl::OkStatus();
}

absl::Status PsClient::WaitForAll() {
  SYNCLINE_RETURN_IF_ERROR(calls_.Wait());
  return rows_.PullStaleAgain() ? calls_.Wait() : absl::OkStatus();
}

bool PsClient::TakesPart(uint32_t shard) const {
  return HasPart(options_, map_, shard);
}

}  // namespace syncline::worker
