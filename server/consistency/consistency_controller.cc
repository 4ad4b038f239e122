#include "server/consistency/consistency_controller.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/busy.h"
#include "common/base/check.h"
#include "common/base/incarnation.h"
#include "common/base/status_macros.h"

namespace syncline::ps {
namespace {

using Kind = ShardAction::Kind;

void Fail(CallToken token, absl::Status status, ShardActions* out) {
  ShardAction& action = out->emplace_back();
  action.kind = Kind::kFail;
  action.token = token;
  action.status = std::move(status);
}

}  // namespace

ConsistencyController::ConsistencyController(Options options)
    : options_(std::move(options)),
      block_initialised_(dense_block_count(), false),
      expecting_(options_.block_count),
      delivered_(options_.block_count),
      version_(options_.block_count, 0) {
  SYNCLINE_CHECK(!options_.workers.empty() && options_.block_count > 0 &&
                 options_.slot_count <= options_.block_count);
  workers_.assign(options_.workers.size(), PushLedger(options_.block_count));
  activities_.resize(options_.caller_count());
  left_out_pushes_.resize(options_.workers.size());
  StartSyncClock();
}

// --- Events ------------------------------------------------------------------

void ConsistencyController::OnInit(CallToken token, uint32_t rank,
                                   uint64_t incarnation,
                                   absl::Span<const BlockIndex> blocks,
                                   absl::Time now, ShardActions* out) {
  if (absl::Status allowed = CheckChief(rank, incarnation); !allowed.ok()) {
    return Fail(token, std::move(allowed), out);
  }
  moved_ |= !had_init_;
  had_init_ = true;
  for (uint32_t position = 0; position < blocks.size(); ++position) {
    const BlockIndex block = blocks[position];
    if (block_initialised_[block]) continue;
    block_initialised_[block] = true;
    ++initialised_count_;
    moved_ = true;
    out->push_back({.kind = Kind::kInit,
                    .token = token,
                    .block = block,
                    .position = position});
  }
  out->push_back({.kind = Kind::kAck, .token = token});
  changed_ = true;
  Settle(now, out);
}

void ConsistencyController::OnCall(ShardCall call, absl::Time now,
                                   ShardActions* out) {
  absl::Status allowed = CheckCaller(call.rank, call.incarnation);
  if (allowed.ok()) allowed = CheckPusher(call);
  if (!allowed.ok()) return Fail(call.token, std::move(allowed), out);
  if (call.push.has_value()) {
    StartPush(std::move(call), out);
  } else {
    StartPull(std::move(call), out);
  }
  Settle(now, out);
}

absl::Status ConsistencyController::OnBeginCut(
    uint32_t rank, uint64_t incarnation, uint64_t cut_id,
    std::vector<int64_t> clocks, absl::Duration hold, absl::Time now,
    ShardActions* out) {
  SYNCLINE_RETURN_IF_ERROR(CheckCutter(rank, incarnation));
  // A repeat is answered as the first one was, wherever the workers are now.
  if (!cuts_.Knows(cut_id)) SYNCLINE_RETURN_IF_ERROR(CheckCutClocks(clocks));
  SYNCLINE_RETURN_IF_ERROR(cuts_.Announce(cut_id, std::move(clocks), hold));
  changed_ = moved_ = true;
  Settle(now, out);
  return absl::OkStatus();
}

absl::Status ConsistencyController::OnEndCut(uint32_t rank,
                                             uint64_t incarnation,
                                             uint64_t cut_id, absl::Time now,
                                             ShardActions* out) {
  SYNCLINE_RETURN_IF_ERROR(CheckCutter(rank, incarnation));
  SYNCLINE_RETURN_IF_ERROR(cuts_.End(cut_id));
  changed_ = moved_ = true;
  Settle(now, out);
  return absl::OkStatus();
}

absl::Status ConsistencyController::OnActivity(uint32_t rank,
                                               uint64_t incarnation,
                                               Activity activity,
                                               absl::Time now) {
  SYNCLINE_RETURN_IF_ERROR(CheckCaller(rank, incarnation));
  Activity& last = activities_[rank];
  const bool says_more =
      std::tie(activity.clock, activity.done) > std::tie(last.clock, last.done);
  const bool is_over =
      is_worker(rank) && activity.clock < workers_[rank].closed();
  if (!says_more || is_over) return absl::OkStatus();
  last = std::move(activity);
  // While the workers train they are to move themselves.
  if (is_worker(rank) || cuts_.Holds()) moved_at_ = now;
  return absl::OkStatus();
}

void ConsistencyController::OnReduced(const ReductionRound& round,
                                      double squared_norm, absl::Time now,
                                      ShardActions* out) {
  if (reducing_ != round.stage || round.clock != sync_clock_ || !closed_.ok()) {
    return;
  }
  const BlockIndex dense = dense_block_count();
  const BlockIndex all = options_.block_count;
  if (round.stage == ReductionStage::kTrust) {
    ForDelivered(Kind::kApply, 0, dense, squared_norm, out);
  } else if (options_.skip_non_finite && !std::isfinite(squared_norm)) {
    ForDelivered(Kind::kDropGradients, 0, all, squared_norm, out);
    ++skipped_clocks_;
  } else if (options_.trust_ratio && dense > 0) {
    ForDelivered(Kind::kApply, dense, all, squared_norm, out);
    ForDelivered(Kind::kComputeLambUpdate, 0, dense, squared_norm, out);
    return StartReduction(ReductionStage::kTrust, out);
  } else {
    ForDelivered(Kind::kApply, 0, all, squared_norm, out);
  }
  EndSyncClock();
  changed_ = moved_ = true;
  Settle(now, out);
}

void ConsistencyController::OnReductionDelayed(const ReductionRound& round,
                                               const absl::Status& why) {
  if (reducing_ != round.stage || round.clock != sync_clock_) return;
  reduction_trouble_ = absl::StrCat(" (", why.message(), ")");
}

void ConsistencyController::OnCancel(CallToken token, ShardActions* out) {
  const absl::Status status = absl::CancelledError("the caller gave up");
  for (auto call = parked_pushes_.begin(); call != parked_pushes_.end();
       ++call) {
    if (call->token != token) continue;
    parked_pushes_.erase(call);
    return Fail(token, status, out);
  }
  for (auto pull = parked_pulls_.begin(); pull != parked_pulls_.end(); ++pull) {
    if (pull->call.token != token) continue;
    parked_pulls_.erase(pull);
    return Fail(token, status, out);
  }
}

void ConsistencyController::OnFrozen(absl::Duration frozen, absl::Time now) {
  for (ShardCall& call : parked_pushes_) call.deadline += frozen;
  for (ParkedPull& pull : parked_pulls_) pull.call.deadline += frozen;
  cuts_.Postpone(frozen);
  // Something may have moved between the end of the freeze and this tick.
  moved_at_ = std::min(moved_at_ + frozen, std::max(moved_at_, now));
}

void ConsistencyController::OnTick(absl::Time now, ShardActions* out) {
  parked_pushes_.remove_if([&](const ShardCall& call) {
    if (call.deadline > now) return false;
    Fail(call.token, Overdue(call, "push", WhyPushWaits(call)), out);
    return true;
  });
  parked_pulls_.remove_if([&](const ParkedPull& pull) {
    if (pull.call.deadline > now) return false;
    Fail(pull.call.token, Overdue(pull.call, "pull", WhyPullWaits(pull.call)),
         out);
    return true;
  });
  if (const int abandoned = cuts_.Expire(now); abandoned > 0) {
    abandoned_cuts_ += abandoned;
    changed_ = true;
    Settle(now, out);
  }
}

void ConsistencyController::Close(const absl::Status& status,
                                  ShardActions* out) {
  closed_ = status;
  for (const ShardCall& call : parked_pushes_) Fail(call.token, status, out);
  for (const ParkedPull& pull : parked_pulls_) {
    Fail(pull.call.token, status, out);
  }
  parked_pushes_.clear();
  parked_pulls_.clear();
}

absl::Status ConsistencyController::CheckHeldCut(uint32_t rank,
                                                 uint64_t incarnation,
                                                 uint64_t cut_id) const {
  SYNCLINE_RETURN_IF_ERROR(CheckCaller(rank, incarnation));
  const CutSchedule::Cut* const cut = cuts_.Find(cut_id);
  if (cut != nullptr && cut->passed) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      options_.label, ": scan by ", options_.caller(rank).name, ": ",
      cut == nullptr ? cuts_.Absence(cut_id)
                     : absl::StrCat("cut ", cut_id, " is not passed yet")));
}

bool ConsistencyController::BringsGradients(const ShardCall& call) const {
  if (!call.push.has_value() || !initialised() ||
      !CheckCaller(call.rank, call.incarnation).ok() ||
      !CheckPusher(call).ok()) {
    return false;
  }
  const PushFacts& push = *call.push;
  const PushLedger& worker = workers_[call.rank];
  if (push.clock < worker.closed() || worker.finished()) return false;
  return std::any_of(
      push.blocks.begin(), push.blocks.end(),
      [&](BlockIndex block) { return !worker.received_in(block, push.clock); });
}

int64_t ConsistencyController::min_clock() const {
  int64_t least = std::numeric_limits<int64_t>::max();
  for (uint32_t rank = 0; rank < workers_.size(); ++rank) {
    if (active(rank)) least = std::min(least, workers_[rank].closed());
  }
  if (least == std::numeric_limits<int64_t>::max()) return max_clock();
  return sync() ? std::min(least, sync_clock_) : least;
}

int64_t ConsistencyController::max_clock() const {
  int64_t most = 0;
  for (const PushLedger& worker : workers_) {
    most = std::max(most, worker.closed());
  }
  return sync() ? std::min(most, sync_clock_) : most;
}

// --- Callers -----------------------------------------------------------------

absl::Status ConsistencyController::Options::CheckCaller(
    uint32_t rank, uint64_t incarnation) const {
  if (rank >= caller_count()) {
    return absl::InvalidArgumentError(
        absl::StrCat(label, ": rank ", rank, " calls, the job has ranks 0 to ",
                     caller_count() - 1));
  }
  if (incarnation != caller(rank).incarnation) {
    return absl::FailedPreconditionError(
        absl::StrCat(label, ": incarnation ", IncarnationText(incarnation),
                     " of ", caller(rank).name, " was replaced by ",
                     IncarnationText(caller(rank).incarnation)));
  }
  return absl::OkStatus();
}

absl::Status ConsistencyController::CheckCaller(uint32_t rank,
                                                uint64_t incarnation) const {
  if (!closed_.ok()) return closed_;
  return options_.CheckCaller(rank, incarnation);
}

absl::Status ConsistencyController::CheckChief(uint32_t rank,
                                               uint64_t incarnation) const {
  SYNCLINE_RETURN_IF_ERROR(CheckCaller(rank, incarnation));
  if (rank != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(options_.label, ": only rank 0 may do this, not ",
                     options_.caller(rank).name));
  }
  return absl::OkStatus();
}

absl::Status ConsistencyController::CheckCutter(uint32_t rank,
                                                uint64_t incarnation) const {
  SYNCLINE_RETURN_IF_ERROR(CheckCaller(rank, incarnation));
  return is_worker(rank) ? CheckChief(rank, incarnation) : absl::OkStatus();
}

absl::Status ConsistencyController::CheckPusher(const ShardCall& call) const {
  if (!call.push.has_value() || is_worker(call.rank)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(options_.label, ": push of clock ", call.push->clock, " by ",
                   options_.caller(call.rank).name,
                   ": it is the job's evaluator, which only reads"));
}

// --- Pushes ------------------------------------------------------------------

void ConsistencyController::StartPush(ShardCall call, ShardActions* out) {
  if (!initialised()) {
    return Fail(call.token,
                absl::FailedPreconditionError(absl::StrCat(
                    options_.label, ": push before initialisation, ",
                    initialised_count_, " of ", dense_block_count(),
                    " blocks have values")),
                out);
  }
  if (MustPark(call)) return Park(std::move(call), /*as_push=*/true, out);
  AcceptPush(std::move(call), out);
}

bool ConsistencyController::MustPark(const ShardCall& call) const {
  const int64_t clock = call.push->clock;
  const PushLedger& worker = workers_[call.rank];
  // Duplicates, and what comes after the last clock, have nothing to wait for.
  if (clock < worker.closed() || worker.finished()) return false;
  return clock > worker.closed() || (sync() && clock > sync_clock_) ||
         cuts_.Gate(call.rank, clock) != nullptr;
}

void ConsistencyController::AcceptPush(ShardCall call, ShardActions* out) {
  PushLedger& worker = workers_[call.rank];
  if (call.push->clock < worker.closed()) {
    duplicate_blocks_ += call.push->blocks.size();
  } else if (worker.finished()) {
    return Fail(call.token,
                absl::FailedPreconditionError(absl::StrCat(
                    options_.label, ": push of clock ", call.push->clock,
                    " by ", options_.caller(call.rank).name,
                    ", which finished with clock ", worker.closed() - 1)),
                out);
  } else if (absl::Status valid = worker.CheckOpenPush(*call.push);
             !valid.ok()) {
    return Fail(call.token,
                Annotate(valid, absl::StrCat(options_.label, ": push by ",
                                             options_.caller(call.rank).name)),
                out);
  } else {
    Deliver(call, out);
  }
  if (!call.pull.has_value()) {
    out->push_back({.kind = Kind::kAck, .token = call.token});
    return;
  }
  out->push_back({.kind = Kind::kAccept, .token = call.token});
  StartPull(std::move(call), out);
}

void ConsistencyController::Deliver(const ShardCall& call, ShardActions* out) {
  const PushFacts& push = *call.push;
  PushLedger& worker = workers_[call.rank];
  if (worker.Open(push)) {
    if (sync()) {
      sync_samples_ += push.sample_count;
      sync_skipped_ |= options_.skip_non_finite && push.non_finite;
      if (push.non_finite) sync_left_out_.push_back(call.rank);
    } else if (push.non_finite) {
      ++skipped_clocks_;
    }
  }
  for (uint32_t position = 0; position < push.blocks.size(); ++position) {
    const BlockIndex block = push.blocks[position];
    if (!worker.Receive(block)) {
      ++duplicate_blocks_;
      continue;
    }
    moved_ = true;
    out->push_back({.kind = Kind::kBufferGradient,
                    .token = call.token,
                    .block = block,
                    .position = position,
                    .rank = call.rank,
                    .clock = push.clock,
                    .sample_count = push.sample_count});
    if (sync()) {
      delivered_[block] = true;
      if (--expecting_[block] == 0) ResolveBlock(block, out);
      continue;
    }
    // The norm came with the push and is of its sum.
    const double samples = static_cast<double>(push.sample_count);
    out->push_back({.kind = Kind::kApply,
                    .block = block,
                    .clock = push.clock,
                    .sample_count = push.sample_count,
                    .squared_norm = options_.clip_norm
                                        ? push.squared_norm / samples / samples
                                        : -1});
  }
  if (worker.complete()) CloseClock(call.rank, out);
  changed_ = true;
}

void ConsistencyController::CloseClock(uint32_t rank, ShardActions* out) {
  PushLedger& worker = workers_[rank];
  const int64_t clock = worker.closed();
  worker.Close();
  moved_ = true;
  if (!sync()) return;
  // Nobody waits any longer for what it did not send.
  for (BlockIndex block = 0; block < options_.block_count; ++block) {
    if (worker.received_in(block, clock)) continue;
    if (--expecting_[block] == 0) ResolveBlock(block, out);
  }
  if (--sync_open_ == 0) FinishSyncClock(out);
}

void ConsistencyController::RunParkedPushes(ShardActions* out) {
  for (auto parked = parked_pushes_.begin(); parked != parked_pushes_.end();) {
    if (MustPark(*parked)) {
      ++parked;
      continue;
    }
    ShardCall call = std::move(*parked);
    parked = parked_pushes_.erase(parked);
    AcceptPush(std::move(call), out);
  }
}

// --- Sync --------------------------------------------------------------------

void ConsistencyController::StartSyncClock() {
  sync_active_ = 0;
  for (uint32_t rank = 0; rank < workers_.size(); ++rank) {
    if (active(rank)) ++sync_active_;
  }
  sync_open_ = sync_active_;
  sync_samples_ = 0;
  sync_skipped_ = false;
  sync_left_out_.clear();
  reduction_trouble_.clear();
  std::fill(expecting_.begin(), expecting_.end(), sync_active_);
  delivered_.assign(delivered_.size(), false);
}

// Every active worker has delivered the block or closed the clock without it,
// so all have started the clock and the sample count is complete.
void ConsistencyController::ResolveBlock(BlockIndex block, ShardActions* out) {
  // A worker that has nothing to deliver has said so by now.
  const bool waits = WaitsForReduction(block) && !sync_skipped_;
  if (delivered_[block]) {
    Kind next = Kind::kApply;
    if (sync_skipped_) {
      next = Kind::kDropGradients;
    } else if (waits) {
      next = options_.NeedsGradientNorm() ? Kind::kReduceGradients
                                          : Kind::kComputeLambUpdate;
    }
    out->push_back({.kind = next,
                    .block = block,
                    .clock = sync_clock_,
                    .sample_count = sync_samples_});
  }
  if (!waits) version_[block] = sync_clock_ + 1;
}

// A row's step takes no other tensor's norm than the gradient's.
bool ConsistencyController::WaitsForReduction(BlockIndex block) const {
  return options_.NeedsGradientNorm() ||
         (options_.trust_ratio && block < dense_block_count());
}

void ConsistencyController::FinishSyncClock(ShardActions* out) {
  const bool is_empty = sync_samples_ == 0 && !sync_left_out_.empty();
  if (sync_skipped_ || is_empty) {
    ++skipped_clocks_;
  } else {
    for (const uint32_t rank : sync_left_out_) ++left_out_pushes_[rank];
  }
  if (sync_skipped_) return EndSyncClock();
  if (WaitsForReduction(0) && sync_samples_ > 0) {
    return StartReduction(options_.NeedsGradientNorm()
                              ? ReductionStage::kGradient
                              : ReductionStage::kTrust,
                          out);
  }
  EndSyncClock();
}

void ConsistencyController::EndSyncClock() {
  reducing_.reset();
  ++sync_clock_;
  version_.assign(version_.size(), sync_clock_);
  StartSyncClock();
}

void ConsistencyController::StartReduction(ReductionStage stage,
                                           ShardActions* out) {
  reducing_ = stage;
  out->push_back({.kind = Kind::kSendNorms,
                  .clock = sync_clock_,
                  .stage = stage,
                  .sample_count = sync_samples_});
}

void ConsistencyController::ForDelivered(ShardAction::Kind kind,
                                         BlockIndex begin, BlockIndex end,
                                         double squared_norm,
                                         ShardActions* out) {
  for (BlockIndex block = begin; block < end; ++block) {
    if (!delivered_[block]) continue;
    out->push_back({.kind = kind,
                    .block = block,
                    .clock = sync_clock_,
                    .sample_count = sync_samples_,
                    .squared_norm = squared_norm});
  }
}

// --- Pulls -------------------------------------------------------------------

void ConsistencyController::StartPull(ShardCall call, ShardActions* out) {
  const uint64_t cut_id = call.pull->cut_id;
  if (cut_id != 0 && cuts_.Find(cut_id) == nullptr) {
    return Fail(
        call.token,
        absl::FailedPreconditionError(absl::StrCat(
            options_.label, ": pull by ", options_.caller(call.rank).name, ": ",
            cuts_.Absence(cut_id))),
        out);
  }
  // A cut may have been passed by the push that came with this pull; whether it
  // was is settled with the parked calls.
  ParkedPull pull{std::move(call)};
  if (cut_id == 0 && CanRead(&pull)) return Read(pull.call, out);
  changed_ |= cut_id != 0;
  Park(std::move(pull.call), /*as_push=*/false, out);
}

bool ConsistencyController::CanRead(ParkedPull* pull) const {
  if (!initialised()) return false;
  const PullFacts& facts = *pull->call.pull;
  if (facts.cut_id != 0) return cuts_.Find(facts.cut_id)->passed;
  const uint32_t rank = pull->call.rank;
  if (facts.blocks.empty()) return CanReadShard(rank, facts.clock);
  // A block that is ready stays ready, so no block is checked again after it
  // was ready once.
  while (pull->ready_blocks < facts.blocks.size()) {
    const BlockIndex block = facts.blocks[pull->ready_blocks];
    if (!CanReadBlock(block, rank, facts.clock)) return false;
    ++pull->ready_blocks;
  }
  return true;
}

// The rules of the modes, applied to one block: a value does not change by what
// arrives for other blocks, so there is no need to wait for it. A client with a
// bounded number of calls in flight depends on this: the pull that came with
// its first push must not wait for its last one.
bool ConsistencyController::CanReadBlock(BlockIndex block, uint32_t rank,
                                         int64_t clock) const {
  if (sync()) return version_[block] >= clock || sync_active_ == 0;
  if (active(rank) && workers_[rank].clocks_of(block) < clock) return false;
  if (options_.mode == ConsistencyMode::kAsync) return true;
  for (uint32_t other = 0; other < workers_.size(); ++other) {
    if (active(other) &&
        workers_[other].clocks_of(block) < clock - options_.staleness_bound) {
      return false;
    }
  }
  return true;
}

bool ConsistencyController::CanReadShard(uint32_t rank, int64_t clock) const {
  if (sync()) return sync_clock_ >= clock || sync_active_ == 0;
  if (active(rank) && workers_[rank].closed() < clock) return false;
  return options_.mode == ConsistencyMode::kAsync ||
         min_clock() >= clock - options_.staleness_bound;
}

void ConsistencyController::Read(const ShardCall& call, ShardActions* out) {
  out->push_back({.kind = Kind::kRead,
                  .token = call.token,
                  .clock = call.pull->clock,
                  .min_clock = min_clock(),
                  .max_clock = max_clock()});
}

void ConsistencyController::RunParkedPulls(ShardActions* out) {
  parked_pulls_.remove_if([&](ParkedPull& pull) {
    const uint64_t cut_id = pull.call.pull->cut_id;
    if (cut_id != 0 && cuts_.Find(cut_id) == nullptr) {
      Fail(pull.call.token,
           absl::FailedPreconditionError(
               absl::StrCat(options_.label, ": pull by ",
                            options_.caller(pull.call.rank).name, ": ",
                            cuts_.Absence(cut_id))),
           out);
      return true;
    }
    if (!CanRead(&pull)) return false;
    Read(pull.call, out);
    return true;
  });
}

// --- Settling ----------------------------------------------------------------

// Reads come before pushes: a pull that a cut has freed sees the cut, not the
// pushes behind it.
void ConsistencyController::Settle(absl::Time now, ShardActions* out) {
  while (changed_) {
    changed_ = false;
    PassCuts(now);
    RunParkedPulls(out);
    RunParkedPushes(out);
  }
  if (std::exchange(moved_, false)) moved_at_ = now;
}

void ConsistencyController::PassCuts(absl::Time now) {
  while (cuts_.Next() != nullptr && CutIsPassed(*cuts_.Next())) {
    cuts_.PassNext(now);
  }
}

bool ConsistencyController::CutIsPassed(const CutSchedule::Cut& cut) const {
  if (!initialised()) return false;
  for (uint32_t rank = 0; rank < workers_.size(); ++rank) {
    if (!active(rank)) continue;
    if (workers_[rank].closed() < cut.clocks[rank]) return false;
  }
  return !reducing_.has_value();  // closed, but not applied
}

absl::Status ConsistencyController::CheckCutClocks(
    absl::Span<const int64_t> clocks) const {
  if (clocks.size() != workers_.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(options_.label, ": a cut of ", clocks.size(),
                     " clocks, the job has ", workers_.size(), " workers"));
  }
  std::vector<int64_t> smallest(workers_.size());
  bool too_late = false;
  for (uint32_t rank = 0; rank < workers_.size(); ++rank) {
    const PushLedger& worker = workers_[rank];
    smallest[rank] = worker.closed() + (worker.started() ? 1 : 0);
    too_late |= clocks[rank] < smallest[rank];
  }
  if (!too_late) return CheckCutSpread(clocks);
  return absl::OutOfRangeError(
      absl::StrCat(options_.label,
                   ": a worker is past the cut; the smallest "
                   "possible one is at clocks ",
                   absl::StrJoin(smallest, ",")));
}

// A worker that is held at its cut must not keep another from reaching its own:
// that one would wait for the cut, and the cut for it.
absl::Status ConsistencyController::CheckCutSpread(
    absl::Span<const int64_t> clocks) const {
  if (options_.mode == ConsistencyMode::kAsync) return absl::OkStatus();
  const int64_t allowed = sync() ? 0 : options_.staleness_bound + 1;
  int64_t least = std::numeric_limits<int64_t>::max();
  int64_t most = 0;
  for (uint32_t rank = 0; rank < workers_.size(); ++rank) {
    if (!active(rank)) continue;
    least = std::min(least, clocks[rank]);
    most = std::max(most, clocks[rank]);
  }
  if (least >= most || most - least <= allowed) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(options_.label, ": the clocks of a cut are ", most - least,
                   " apart; the consistency mode allows ", allowed));
}

// --- Parking and its messages ------------------------------------------------

void ConsistencyController::Park(ShardCall call, bool as_push,
                                 ShardActions* out) {
  if (parked_pushes_.size() + parked_pulls_.size() >= options_.parked_max) {
    return Fail(
        call.token,
        BusyError(absl::StrCat(options_.label, ": ", options_.parked_max,
                               " calls are parked already")),
        out);
  }
  if (as_push) {
    parked_pushes_.push_back(std::move(call));
  } else {
    parked_pulls_.push_back({std::move(call)});
  }
}

absl::Status ConsistencyController::Overdue(const ShardCall& call,
                                            absl::string_view what,
                                            const std::string& why) const {
  const int64_t clock = what == "push" ? call.push->clock : call.pull->clock;
  return absl::DeadlineExceededError(absl::StrCat(
      options_.label, ": ", what, " of clock ", clock, " by ",
      options_.caller(call.rank).name, " ran out of time waiting for ", why));
}

std::string ConsistencyController::WhyPushWaits(const ShardCall& call) const {
  const int64_t clock = call.push->clock;
  if (clock > workers_[call.rank].closed()) {
    return absl::StrCat("its own earlier pushes: ", Standing(call.rank));
  }
  if (const CutSchedule::Cut* cut = cuts_.Gate(call.rank, clock);
      cut != nullptr) {
    if (cut->passed) {
      return absl::StrCat("the end of cut ", cut->id, " by ", CutterText());
    }
    return absl::StrCat("cut ", cut->id,
                        "; missing: ", Missing([&](uint32_t rank) {
                          return workers_[rank].closed() < cut->clocks[rank];
                        }));
  }
  if (reducing_.has_value()) return ReductionText();
  return absl::StrCat("clock ", sync_clock_,
                      "; missing: ", Missing([&](uint32_t rank) {
                        return workers_[rank].closed() <= sync_clock_;
                      }));
}

std::string ConsistencyController::WhyPullWaits(const ShardCall& call) const {
  const PullFacts& pull = *call.pull;
  if (!initialised()) {
    return absl::StrCat("initial values from ", options_.workers[0].name, ": ",
                        initialised_count_, " of ", dense_block_count(),
                        " blocks have some");
  }
  if (reducing_.has_value()) return ReductionText();
  if (pull.cut_id != 0) {
    const CutSchedule::Cut& cut = *cuts_.Find(pull.cut_id);
    return absl::StrCat("cut ", cut.id,
                        "; missing: ", Missing([&](uint32_t rank) {
                          return workers_[rank].closed() < cut.clocks[rank];
                        }));
  }
  const auto lacks = [&](uint32_t rank) {
    const PushLedger& worker = workers_[rank];
    int64_t needed = pull.clock;
    if (options_.mode == ConsistencyMode::kBoundedStaleness &&
        rank != call.rank) {
      needed -= options_.staleness_bound;
    }
    if (options_.mode == ConsistencyMode::kAsync && rank != call.rank) {
      return false;
    }
    if (worker.closed() >= needed) return false;
    // Where norms are reduced, no block is applied before all have arrived.
    return pull.blocks.empty() ||
           (sync() && WaitsForReduction(pull.blocks[0])) ||
           std::any_of(pull.blocks.begin(), pull.blocks.end(),
                       [&](BlockIndex block) {
                         return worker.clocks_of(block) < needed;
                       });
  };
  return absl::StrCat("the pushes before it; missing: ", Missing(lacks));
}

std::string ConsistencyController::ReductionText() const {
  const char* what = reducing_ == ReductionStage::kGradient
                         ? "the global norm of clock "
                         : "the norms of all tensors of clock ";
  return absl::StrCat(what, sync_clock_, reduction_trouble_);
}

std::string ConsistencyController::Missing(
    const std::function<bool(uint32_t rank)>& lacks) const {
  std::vector<std::string> names;
  for (uint32_t rank = 0; rank < workers_.size(); ++rank) {
    if (active(rank) && lacks(rank)) names.push_back(Standing(rank));
  }
  return absl::StrJoin(names, ", ");
}

std::string ConsistencyController::Standing(uint32_t rank) const {
  const PushLedger& worker = workers_[rank];
  std::string standing = worker.started()
                             ? absl::StrCat(worker.received_count(), " of ",
                                            worker.expected_count(), " blocks")
                             : "nothing of it yet";
  if (const std::string activity = ActivityText(rank); !activity.empty()) {
    absl::StrAppend(&standing, "; last heard of ", activity);
  }
  return absl::StrCat(options_.caller(rank).name, " (clock ", worker.closed(),
                      ", ", standing, ")");
}

std::string ConsistencyController::CutterText() const {
  const uint32_t rank = options_.evaluator.has_value() ? worker_count() : 0;
  const std::string& name = options_.caller(rank).name;
  const std::string activity = ActivityText(rank);
  return activity.empty()
             ? name
             : absl::StrCat(name, " (last heard of ", activity, ")");
}

std::string ConsistencyController::ActivityText(uint32_t rank) const {
  const Activity& activity = activities_[rank];
  if (activity.clock < 0) return "";
  if (is_worker(rank) &&
      (activity.clock != workers_[rank].closed() || workers_[rank].started())) {
    return "";
  }
  return absl::StrCat(activity.what, ", ", activity.done, " of ",
                      activity.total);
}

}  // namespace syncline::ps
