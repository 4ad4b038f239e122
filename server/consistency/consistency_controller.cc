#include "server/consistency/consistency_controller.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/busy.h"
#include "common/base/check.h"
#include "common/base/fault_points.h"
#include "common/base/status_macros.h"
#include "server/consistency/cut_clocks.h"

namespace syncline::ps {
namespace {

using Kind = ShardAction::Kind;

void Fail(CallToken token, absl::Status status, ShardActions* out) {
  ShardAction& action = out->emplace_back();
  action.kind = Kind::kFail;
  action.token = token;
  action.status = std::move(status);
}

// One block's gradient of the push, for its lane.
void BufferGradient(const ShardCall& call, uint32_t position,
                    ShardActions* out) {
  out->push_back({.kind = Kind::kBufferGradient,
                  .token = call.token,
                  .block = call.push->blocks[position],
                  .position = position,
                  .rank = call.rank,
                  .clock = call.push->clock,
                  .sample_count = call.push->sample_count});
}

// Applies one buffered gradient by itself. Its norm came with the push and is
// that of the summed gradient.
void ApplyAlone(const ShardCall& call, uint32_t position, bool clip_norm,
                ShardActions* out) {
  const PushFacts& push = *call.push;
  const double samples = static_cast<double>(push.sample_count);
  out->push_back(
      {.kind = Kind::kApply,
       .block = push.blocks[position],
       .clock = push.clock,
       .sample_count = push.sample_count,
       .squared_norm = clip_norm ? push.squared_norm / samples / samples : -1});
}

}  // namespace

ConsistencyController::ConsistencyController(Options options)
    : options_(std::move(options)),
      block_initialised_(options_.dense_block_count(), false),
      sync_(options_),
      activities_(options_.caller_count()),
      stragglers_(options_.workers.size()),
      behind_(options_.workers.size()) {
  SYNCLINE_CHECK(!options_.workers.empty() && options_.block_count > 0 &&
                 options_.slot_count <= options_.block_count);
  workers_.assign(options_.workers.size(), PushLedger(options_.block_count));
  if (options_.deals_clocks) {
    leased_.emplace(static_cast<uint32_t>(workers_.size()));
  }
  BeginStretch(0);
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
  absl::Status allowed = CheckCaller(call);
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
    ShardActions* out, CutUse use, std::optional<TrainingRegime> regime) {
  smallest_cut_.clear();
  SYNCLINE_RETURN_IF_ERROR(CheckCutter(rank, incarnation));
  SYNCLINE_RETURN_IF_ERROR(CheckCutForm(options_, clocks));
  const absl::Status status =
      AnnounceCut(cut_id, clocks, hold, use, std::move(regime));
  if (absl::IsOutOfRange(status) || absl::IsFailedPrecondition(status)) {
    smallest_cut_ = cuts_.SmallestClocks(cut_id, SmallestFor(use, clocks));
  }
  SYNCLINE_RETURN_IF_ERROR(status);
  changed_ = moved_ = true;
  Settle(now, out);
  return absl::OkStatus();
}

absl::Status ConsistencyController::AnnounceCut(
    uint64_t cut_id, std::vector<int64_t> clocks, absl::Duration hold,
    CutUse use, std::optional<TrainingRegime> regime) {
  // A repeat is answered as the first one was, wherever the workers are now.
  if (!cuts_.Knows(cut_id)) {
    if (const CutSchedule::Cut* moving = MovingCut(); moving != nullptr) {
      return absl::FailedPreconditionError(
          absl::StrCat(options_.label, ": ", moving->Name(),
                       " is held: the state of this shard moves"));
    }
    if (use == CutUse::kRouting && options_.leases) {
      return absl::InvalidArgumentError(absl::StrCat(
          options_.label, ": the shards of a job with leased data stay"));
    }
    if (use == CutUse::kRouting && lost_ != nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(
          options_.label, ": the shards stay where the job has lost a worker"));
    }
    if (use == CutUse::kRegime) {
      SYNCLINE_RETURN_IF_ERROR(CheckRegimeCut(clocks, regime));
    } else {
      SYNCLINE_RETURN_IF_ERROR(CheckCutClocks(options_, workers_, clocks));
      SYNCLINE_RETURN_IF_ERROR(CheckBesideRegimeCut(clocks, use));
    }
  }
  return cuts_.Announce(cut_id, std::move(clocks), hold, use,
                        std::move(regime));
}

absl::Status ConsistencyController::OnEndCut(uint32_t rank,
                                             uint64_t incarnation,
                                             uint64_t cut_id, absl::Time now,
                                             ShardActions* out, bool commit) {
  SYNCLINE_RETURN_IF_ERROR(CheckCutter(rank, incarnation));
  const CutSchedule::Cut* const cut = cuts_.Find(cut_id);
  const CutSchedule::Cut* const moving = MovingCut();
  // Two routing cuts must not wait for each other's end.
  if (moving != nullptr && (cut == nullptr || cut->use != CutUse::kRouting)) {
    return BusyError(absl::StrCat(options_.label, ": ", moving->Name(),
                                  " is held: the state of this shard moves"));
  }
  if (commit && cut != nullptr) {
    SYNCLINE_RETURN_IF_ERROR(CommitRegime(cut_id, now, out));
  }
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
  if (!activities_.OnReport(rank, std::move(activity), ledger(rank))) {
    return absl::OkStatus();
  }
  // While the workers train they are to move themselves.
  if (options_.is_worker(rank) || cuts_.Holds()) moved_at_ = now;
  return absl::OkStatus();
}

void ConsistencyController::OnReduced(const ReductionRound& round,
                                      double squared_norm, absl::Time now,
                                      ShardActions* out) {
  if (!closed_.ok() || !sync_.IsReducing(round)) return;
  if (!sync_.OnReduced(round, squared_norm, out)) return;
  BeginSyncClock();
  changed_ = moved_ = true;
  Settle(now, out);
}

void ConsistencyController::OnReductionDelayed(const ReductionRound& round,
                                               const absl::Status& why) {
  sync_.OnReductionDelayed(round, why);
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
  stragglers_.OnFrozen(frozen);
  // Something may have moved between the end of the freeze and this tick.
  moved_at_ = std::min(moved_at_ + frozen, std::max(moved_at_, now));
}

WaitReasons ConsistencyController::Reasons() const {
  std::vector<WaitReasons::Lost> lost;
  for (const auto& [rank, leases] : lost_leases_) {
    lost.push_back({rank, leases.returned.has_value()});
  }
  return {options_, workers_,    cuts_,      sync_,
          in_sync_, activities_, NotBegun(), std::move(lost)};
}

std::string ConsistencyController::NotBegun() const {
  if (initialised()) return "";
  const std::string& chief = options_.workers[0].name;
  if (initialised_count_ == options_.dense_block_count()) {
    return absl::StrCat(chief, ", which has not begun the job");
  }
  return absl::StrCat("initial values from ", chief, ": ", initialised_count_,
                      " of ", options_.dense_block_count(),
                      " blocks have some");
}

void ConsistencyController::OnTick(absl::Time now, ShardActions* out) {
  const WaitReasons reasons = Reasons();
  parked_pushes_.remove_if([&](const ShardCall& call) {
    if (call.deadline > now) return false;
    Fail(call.token, reasons.OverduePush(call), out);
    return true;
  });
  parked_pulls_.remove_if([&](const ParkedPull& pull) {
    if (pull.call.deadline > now) return false;
    Fail(pull.call.token, reasons.OverduePull(pull.call), out);
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
  if (!call.push.has_value() || !initialised() || !CheckCaller(call).ok() ||
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
  return in_sync_ ? std::min(least, sync_.clock()) : least;
}

int64_t ConsistencyController::max_clock() const {
  int64_t most = 0;
  for (uint32_t rank = 0; rank < workers_.size(); ++rank) {
    const PushLedger& worker = workers_[rank];
    const bool is_lost = FindLost(rank) != nullptr;
    most = std::max(most, is_lost ? worker.pushed() : worker.closed());
  }
  return in_sync_ ? std::min(most, sync_.clock()) : most;
}

// --- Callers -----------------------------------------------------------------

absl::Status ConsistencyController::CheckCaller(uint32_t rank,
                                                uint64_t incarnation) const {
  if (!closed_.ok()) return closed_;
  SYNCLINE_RETURN_IF_ERROR(options_.CheckCaller(rank, incarnation));
  const LostWorker* const lost = FindLost(rank);
  return lost == nullptr ? absl::OkStatus() : LostError(*lost);
}

absl::Status ConsistencyController::CheckCaller(const ShardCall& call) const {
  if (!call.for_lost) return CheckCaller(call.rank, call.incarnation);
  SYNCLINE_RETURN_IF_ERROR(CheckChief(0, call.incarnation));
  if (options_.leases && call.rank > 0 && FindLost(call.rank) != nullptr) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      options_.label, ": ", options_.workers[0].name, " makes a clock of rank ",
      call.rank, ", which is no worker that is lost"));
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
  return options_.is_worker(rank) ? CheckChief(rank, incarnation)
                                  : absl::OkStatus();
}

const CutSchedule::Cut* ConsistencyController::MovingCut() const {
  for (const CutSchedule::Cut& cut : cuts_.cuts()) {
    if (cut.passed && cut.use == CutUse::kRouting) return &cut;
  }
  return nullptr;
}

absl::Status ConsistencyController::CheckPusher(const ShardCall& call) const {
  if (!call.push.has_value() || options_.is_worker(call.rank)) {
    return absl::OkStatus();
  }
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
                    options_.label,
                    ": push before initialisation; missing: ", NotBegun())),
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
  if (AwaitsReturn(call.rank)) return true;
  return clock > worker.closed() || clock >= stretch_end_ ||
         (in_sync_ && clock > sync_.clock()) ||
         cuts_.Gate(call.rank, clock) != nullptr;
}

void ConsistencyController::AcceptPush(ShardCall call, ShardActions* out) {
  PushLedger& worker = workers_[call.rank];
  bool dropped = false;
  if (call.push->clock < worker.closed()) {
    dropped = IsDropped(call.rank, call.push->clock);
    if (dropped) {
      CountDropped(call.rank, call.push->clock, call.push->new_samples());
    } else {
      duplicate_blocks_ += call.push->blocks.size();
    }
    if (IsMutant(FaultPoint::kPushSkipDeduplication) && !in_sync_) {
      for (uint32_t i = 0; i < call.push->blocks.size(); ++i) {
        BufferGradient(call, i, out);
        ApplyAlone(call, i, options_.clip_norm, out);
      }
    }
  } else if (worker.finished()) {
    return Fail(call.token,
                absl::FailedPreconditionError(absl::StrCat(
                    options_.label, ": push of clock ", call.push->clock,
                    " by ", options_.caller(call.rank).name,
                    ", which finished with clock ", worker.closed() - 1)),
                out);
  } else if (absl::Status valid = CheckOpenPush(call); !valid.ok()) {
    return Fail(call.token, std::move(valid), out);
  } else {
    Deliver(call, out);
  }
  if (!call.pull.has_value()) {
    out->push_back(
        {.kind = Kind::kAck, .token = call.token, .dropped = dropped});
    return;
  }
  out->push_back({.kind = Kind::kAccept, .token = call.token});
  StartPull(std::move(call), out);
}

absl::Status ConsistencyController::CheckOpenPush(const ShardCall& call) const {
  const PushLedger& worker = workers_[call.rank];
  const std::string& name = options_.caller(call.rank).name;
  SYNCLINE_RETURN_IF_ERROR(
      Annotate(worker.CheckOpenPush(*call.push),
               absl::StrCat(options_.label, ": push by ", name)));
  if (!leased_.has_value() || worker.started()) return absl::OkStatus();
  return Annotate(leased_->Check(call.rank, name, *call.push), options_.label);
}

void ConsistencyController::Deliver(const ShardCall& call, ShardActions* out) {
  const PushFacts& push = *call.push;
  PushLedger& worker = workers_[call.rank];
  if (worker.Open(push)) {
    if (leased_.has_value()) leased_->Deal(call.rank);
    if (in_sync_) {
      sync_.OnStarted(call.rank, push);
    } else if (push.non_finite) {
      ++skipped_pushes_;
    }
  }
  for (uint32_t position = 0; position < push.blocks.size(); ++position) {
    const BlockIndex block = push.blocks[position];
    if (!worker.Receive(block)) {
      ++duplicate_blocks_;
      continue;
    }
    moved_ = true;
    BufferGradient(call, position, out);
    if (in_sync_) {
      sync_.OnGradient(block, out);
    } else {
      ApplyAlone(call, position, options_.clip_norm, out);
    }
  }
  if (worker.complete()) CloseClock(call.rank, out);
  changed_ = true;
}

void ConsistencyController::CloseClock(uint32_t rank, ShardActions* out) {
  workers_[rank].Close();
  moved_ = true;
  if (!in_sync_) return;
  if (sync_.OnClosed(rank, workers_[rank], out)) return BeginSyncClock();
  if (!sync_.AwaitsSet()) return;
  out->push_back({.kind = Kind::kSendCloses,
                  .clock = sync_.clock(),
                  .ranks = sync_.ClosedRanks()});
}

void ConsistencyController::BeginSyncClock() {
  uint32_t active_workers = 0;
  for (const PushLedger& worker : workers_) {
    if (!worker.finished()) ++active_workers;
  }
  sync_.Begin(active_workers, LeavesBehind());
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
  // was is settled with the parked calls, which are read behind its snapshot.
  ParkedPull pull{std::move(call)};
  const bool waits_for_cut =
      cut_id != 0 || (cuts_.Next() != nullptr && CutIsPassed(*cuts_.Next()));
  if (!waits_for_cut && CanRead(&pull)) return Read(pull.call, out);
  changed_ |= waits_for_cut;
  Park(std::move(pull.call), /*as_push=*/false, out);
}

bool ConsistencyController::CanRead(ParkedPull* pull) const {
  if (!initialised()) return false;
  const PullFacts& facts = *pull->call.pull;
  if (facts.cut_id != 0) {
    return cuts_.Find(facts.cut_id)->passed || HasToMakeOthers(pull->call);
  }
  const uint32_t rank = pull->call.rank;
  // A pull of no value tells its worker that the regime has been decided on.
  if (facts.blocks.empty()) {
    return CanReadShard(rank, facts.clock) && !AwaitsRegime(rank, facts.clock);
  }
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
//
// SYNC buffers what it receives, so SyncClock knows what is applied, also for
// the values that the mode behind it reads first. The other modes apply at
// once, and the bound of the pull's clock decides: 0 for SYNC's first values.
bool ConsistencyController::CanReadBlock(BlockIndex block, uint32_t rank,
                                         int64_t clock) const {
  if (in_sync_) return sync_.HasApplied(block, clock);
  if (active(rank) && workers_[rank].clocks_of(block) < clock) return false;
  const std::optional<int64_t> bound = options_.regimes.At(clock).bound();
  if (!bound.has_value()) return true;
  for (uint32_t other = 0; other < workers_.size(); ++other) {
    if (active(other) && workers_[other].clocks_of(block) < clock - *bound) {
      return false;
    }
  }
  return true;
}

bool ConsistencyController::CanReadShard(uint32_t rank, int64_t clock) const {
  if (in_sync_) return sync_.HasApplied(clock);
  if (active(rank) && workers_[rank].closed() < clock) return false;
  const std::optional<int64_t> bound = options_.regimes.At(clock).bound();
  return !bound.has_value() || min_clock() >= clock - *bound;
}

void ConsistencyController::Read(const ShardCall& call, ShardActions* out) {
  const bool leaves_behind = LeavesBehind();
  // Such a caller learns which of its own clocks are in the values.
  const int64_t min = leaves_behind && options_.is_worker(call.rank)
                          ? behind_[call.rank].applied
                          : min_clock();
  int64_t open_clock = leaves_behind ? sync_.clock() : 0;
  if (leased_.has_value() && options_.is_worker(call.rank)) {
    open_clock = leased_->Next(call.rank);
  }
  std::vector<ReturnedLease> returned;
  if (call.rank == 0 && options_.leases) {
    const CutSchedule::Cut* const cut = cuts_.Find(call.pull->cut_id);
    if (cut == nullptr || !cut->passed) {
      returned =
          ReturnedBelow(cut == nullptr ? call.pull->clock : cut->clocks[0]);
    }
  }
  out->push_back(
      {.kind = Kind::kRead,
       .token = call.token,
       .clock = call.pull->clock,
       .min_clock = min,
       .max_clock = max_clock(),
       .skipped_through = sync_.SkippedThrough(
           call.pull->cut_id != 0 ? sync_.clock() : call.pull->clock),
       .open_clock = open_clock,
       .returned = std::move(returned)});
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
    PassCuts(now, out);
    PassStretches();
    RunParkedPulls(out);
    RunParkedPushes(out);
  }
  if (std::exchange(moved_, false)) moved_at_ = now;
  stragglers_.Update(HoldsUp(), now);
}

std::optional<StragglerLog::Holder> ConsistencyController::HoldsUp() const {
  if (!initialised() || !closed_.ok()) return std::nullopt;
  // Nobody waits for a backup.
  if (LeavesBehind() && !options_.quorum->timeout.has_value() &&
      options_.quorum->needed < workers_.size()) {
    return std::nullopt;
  }
  if (in_sync_ ? sync_.open_workers() != 1 : parked_pulls_.empty()) {
    return std::nullopt;
  }
  // The active worker that is furthest behind, and the next one.
  uint32_t last = 0;
  int64_t least = std::numeric_limits<int64_t>::max();
  int64_t next = std::numeric_limits<int64_t>::max();
  uint32_t active_workers = 0;
  for (uint32_t rank = 0; rank < workers_.size(); ++rank) {
    if (!active(rank)) continue;
    ++active_workers;
    const int64_t closed = workers_[rank].closed();
    next = std::min(next, std::max(least, closed));
    if (closed < least) last = rank;
    least = std::min(least, closed);
  }
  if (active_workers < 2 || least == next) return std::nullopt;
  const StragglerLog::Holder holder = {.rank = last, .clock = least};
  if (in_sync_) return holder;
  for (const ParkedPull& pull : parked_pulls_) {
    if (pull.call.pull->cut_id != 0) continue;
    const int64_t clock = pull.call.pull->clock;
    const std::optional<int64_t> bound = options_.regimes.At(clock).bound();
    if (bound.has_value() && least < clock - *bound && next >= clock - *bound) {
      return holder;
    }
  }
  return std::nullopt;
}

// Every apply below the cut is in the list by now, here or in an earlier event,
// and every push above it is parked: a snapshot belongs here.
void ConsistencyController::PassCuts(absl::Time now, ShardActions* out) {
  while (cuts_.Next() != nullptr && CutIsPassed(*cuts_.Next())) {
    const CutSchedule::Cut& cut = cuts_.PassNext(now);
    if (!TakesSnapshot(cut.use)) continue;
    out->push_back({.kind = Kind::kSnapshot,
                    .cut_id = cut.id,
                    .cut_clocks = cut.clocks,
                    .cut_use = cut.use});
  }
}

bool ConsistencyController::CutIsPassed(const CutSchedule::Cut& cut) const {
  if (!initialised()) return false;
  // A scan at a held cut ends here before a routing cut is passed.
  if (cut.use == CutUse::kRouting && cuts_.Holds()) return false;
  for (uint32_t rank = 0; rank < workers_.size(); ++rank) {
    if (workers_[rank].finished() && !AwaitsReturn(rank)) continue;
    if (workers_[rank].closed() < cut.clocks[rank]) return false;
  }
  if (sync_.IsReducing()) return false;  // closed, but not applied
  // The same, of workers that have finished, too.
  return !sync_.AwaitsSet() ||
         std::all_of(cut.clocks.begin(), cut.clocks.end(),
                     [&](int64_t clock) { return clock <= sync_.clock(); });
}

// --- Parking -----------------------------------------------------------------

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

}  // namespace syncline::ps
