#include "server/shard/job_shard.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/busy.h"
#include "common/base/check.h"
#include "common/base/clock.h"

namespace syncline::ps {
namespace {

using Kind = ShardAction::Kind;

constexpr absl::Duration kNormRetryDelay = absl::Milliseconds(200);
// Work that takes less time than waking a lane's thread, some 20 us.
constexpr size_t kStepsHereMax = 8;
constexpr uint64_t kBytesHereMax = 16 << 10;

}  // namespace

JobShard::JobShard(const JobConfig& config, const Resources& resources,
                   AllReduceNorms all_reduce_norms,
                   std::unique_ptr<EmbeddingTables> tables)
    : config_(config),
      layout_(LayoutOf(config)),
      lanes_(resources.lanes),
      budget_(resources.budget),
      buffers_(resources.buffers),
      all_reduce_norms_(std::move(all_reduce_norms)),
      executor_(&config_, &layout_, std::move(tables)),
      controller_(config.controller),
      unsent_(config.controller.caller_count()),
      buffered_bytes_(layout_.counts().size()),
      slots_(config.controller.slot_count) {
  for (uint32_t table = 0; table < layout_.tables().size(); ++table) {
    const TableMap& map = layout_.tables()[table].map;
    const uint32_t first = map.FirstSlot(config.ps_rank);
    for (uint32_t i = 0; i < map.SlotCount(config.ps_rank); ++i) {
      slot_lanes_.push_back(executor_.tables().LaneOf(table, first + i));
    }
  }
}

// --- Events ------------------------------------------------------------------

void JobShard::Init(const Caller& caller, std::vector<BlockIndex> blocks,
                    int64_t total_clocks, Payload payload, Done done) {
  Outcome outcome;
  {
    MutexLock lock(&mu_);
    const CallToken token = next_token_++;
    PendingCall& call = calls_[token];
    call.payload = std::move(payload);
    call.offsets = layout_.Offsets(blocks);
    call.done = std::move(done);
    absl::Status accepted;
    // The controller refuses the others.
    if (controller_.CheckChief(caller.rank(), caller.incarnation()).ok()) {
      accepted = SetTotalClocks(total_clocks);
    }
    if (!accepted.ok()) {
      End(token, std::move(accepted), &outcome);
    } else {
      ShardActions actions;
      controller_.OnInit(token, caller.rank(), caller.incarnation(), blocks,
                         MonotonicNow(), &actions);
      ApplyActions(actions, &outcome);
    }
    SubmitSteps(&outcome);
  }
  RunCallbacks(&outcome);
}

absl::Status JobShard::SetTotalClocks(int64_t total_clocks) {
  if (total_clocks_ == total_clocks) return absl::OkStatus();
  if (total_clocks_.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat(config_.label, ": total_clocks is ", total_clocks,
                     ", an earlier Init said ", *total_clocks_));
  }
  if (total_clocks < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(config_.label, ": total_clocks is ", total_clocks,
                     ", must be at least 0"));
  }
  if (config_.needs_total_clocks) {
    if (total_clocks == 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          config_.label,
          ": total_clocks is 0, but the learning rate ends with the job"));
    }
    executor_.dense().SetTotalClocks(total_clocks);
  }
  total_clocks_ = total_clocks;
  return absl::OkStatus();
}

CallToken JobShard::Call(ShardCall call, Payload payload, Taken taken,
                         Done done) {
  if (executor_.non_finite().failed()) {
    done(executor_.non_finite().failure(), {});
    return 0;
  }
  absl::Status room;
  if (payload.pushed != nullptr) {
    room = executor_.tables().AcceptsPushes(payload.pushed->lists);
  }
  Outcome outcome;
  CallToken token = 0;
  {
    MutexLock lock(&mu_);
    token = next_token_++;
    call.token = token;
    PendingCall& pending = calls_[token];
    pending.rank = call.rank;
    pending.arrived = MonotonicNow();
    pending.deadline = call.deadline;
    pending.pulled_rows = std::move(payload.pulled);
    pending.pull_hold = std::move(payload.pull_hold);
    pending.answer = std::move(payload.answer);
    pending.payload = std::move(payload);
    if (call.push.has_value()) {
      pending.offsets = layout_.Offsets(call.push->blocks);
    }
    if (call.pull.has_value()) {
      pending.pulled = call.pull->blocks;
      pending.pulled_type = call.pull->type;
    }
    // An answer larger than its shared-memory area is sent over the network.
    if (AnswerBytes(pending) > pending.answer.bytes) pending.answer = {};
    pending.taken = std::move(taken);
    pending.done = std::move(done);
    ShardActions actions;
    // Duplicate and unauthorised calls keep their own reply; only new gradients
    // are refused.
    if (!room.ok() && controller_.BringsGradients(call)) {
      actions.push_back(
          {.kind = Kind::kFail, .token = token, .status = std::move(room)});
    } else {
      controller_.OnCall(std::move(call), pending.arrived, &actions);
    }
    ApplyActions(actions, &outcome);
    LimitParked(token, &outcome);
    SubmitFewSteps(&outcome);
  }
  RunCallbacks(&outcome);
  return token;
}

void JobShard::Cancel(CallToken token) {
  Outcome outcome;
  {
    MutexLock lock(&mu_);
    ShardActions actions;
    controller_.OnCancel(token, &actions);
    ApplyActions(actions, &outcome);
    EndWaitingReads(
        [token](CallToken waiting, const PendingCall&) {
          return waiting == token ? absl::CancelledError("the caller gave up")
                                  : absl::OkStatus();
        },
        &outcome);
  }
  RunCallbacks(&outcome);
}

absl::Status JobShard::BeginCut(const Caller& caller, uint64_t cut_id,
                                std::vector<int64_t> clocks,
                                absl::Duration hold) {
  Outcome outcome;
  absl::Status status;
  {
    MutexLock lock(&mu_);
    ShardActions actions;
    status = controller_.OnBeginCut(caller.rank(), caller.incarnation(), cut_id,
                                    std::move(clocks), hold, MonotonicNow(),
                                    &actions);
    ApplyActions(actions, &outcome);
    SubmitSteps(&outcome);
  }
  RunCallbacks(&outcome);
  return status;
}

absl::Status JobShard::EndCut(const Caller& caller, uint64_t cut_id) {
  Outcome outcome;
  absl::Status status;
  {
    MutexLock lock(&mu_);
    ShardActions actions;
    status = controller_.OnEndCut(caller.rank(), caller.incarnation(), cut_id,
                                  MonotonicNow(), &actions);
    ApplyActions(actions, &outcome);
    SubmitSteps(&outcome);
  }
  RunCallbacks(&outcome);
  return status;
}

absl::Status JobShard::ReportActivity(
    const Caller& caller, ConsistencyController::Activity activity) {
  MutexLock lock(&mu_);
  return controller_.OnActivity(caller.rank(), caller.incarnation(),
                                std::move(activity), MonotonicNow());
}

void JobShard::Tick(absl::Time now, absl::Duration frozen) {
  Outcome outcome;
  std::optional<ReductionRound> retry;
  {
    MutexLock lock(&mu_);
    ShardActions actions;
    if (frozen > absl::ZeroDuration()) {
      controller_.OnFrozen(frozen, now);
      for (auto& [token, call] : calls_) call.deadline += frozen;
    }
    controller_.OnTick(now, &actions);
    ApplyActions(actions, &outcome);
    EndWaitingReads(
        [this, now](CallToken, const PendingCall& call) {
          if (call.deadline > now) return absl::OkStatus();
          return absl::DeadlineExceededError(absl::StrCat(
              config_.label, ": ", config_.controller.caller(call.rank).name,
              " does not take the answers that it has"));
        },
        &outcome);
    SubmitSteps(&outcome);
    if (norm_retry_at_ <= now) retry = std::exchange(unsent_norms_, {});
  }
  RunCallbacks(&outcome);
  if (retry.has_value()) SendNorms(*retry);
}

void JobShard::Close(const absl::Status& status) {
  Outcome outcome;
  {
    MutexLock lock(&mu_);
    unsent_norms_.reset();
    ShardActions actions;
    controller_.Close(status, &actions);
    ApplyActions(actions, &outcome);
    EndWaitingReads([&](CallToken, const PendingCall&) { return status; },
                    &outcome);
  }
  RunCallbacks(&outcome);
}

// --- Actions -----------------------------------------------------------------

void JobShard::ApplyActions(const ShardActions& actions, Outcome* outcome) {
  if (outcome->lanes.empty()) outcome->lanes.resize(lanes_->count());
  for (const ShardAction& action : actions) ApplyAction(action, outcome);
  for (const CallToken token : std::exchange(outcome->accepted, {})) {
    const auto call = calls_.find(token);
    if (call == calls_.end() || call->second.taken == nullptr) continue;
    AfterSteps(std::move(call->second.taken), outcome);
  }
}

void JobShard::ReleasePayload(PendingCall* call) {
  call->payload = Payload();
  CountParked(call, 0);
}

void JobShard::CountParked(PendingCall* call, uint64_t bytes) {
  parked_bytes_ += bytes;
  parked_bytes_ -= std::exchange(call->parked_bytes, bytes);
}

void JobShard::ApplyAction(const ShardAction& action, Outcome* outcome) {
  const bool names_block = action.kind == Kind::kBufferGradient ||
                           action.kind == Kind::kReduceGradients ||
                           action.kind == Kind::kApply ||
                           action.kind == Kind::kDropGradients;
  if (names_block && !layout_.is_dense(action.block)) {
    return ApplySlotAction(action, outcome);
  }
  switch (action.kind) {
    case Kind::kInit:
    case Kind::kBufferGradient: {
      const PendingCall& call = calls_.at(action.token);
      AddStep({.kind = action.kind,
               .block = action.block,
               .rank = action.rank,
               .clock = action.clock,
               .sample_count = action.sample_count,
               .first = call.offsets[action.position],
               .source = call.payload.values},
              outcome);
      if (action.kind == Kind::kBufferGradient) {
        // It stays as it came.
        const uint64_t bytes =
            layout_.counts()[action.block] * ElementBytes(config_.wire_type);
        buffered_bytes_[action.block] += bytes;
        gradient_bytes_ += bytes;
      }
      return;
    }
    case Kind::kAccept:
      // The lanes hold the delivered gradients now. The client's window bounds
      // them until the lanes have taken them, the controller afterwards. A
      // repeat must not take the room that it waits for.
      outcome->accepted.push_back(action.token);
      ReleasePayload(&calls_.at(action.token));
      return CountParked(&calls_.at(action.token),
                         BytesHeld(calls_.at(action.token)));
    case Kind::kReduceGradients:
    case Kind::kComputeLambUpdate:
    case Kind::kApply:
    case Kind::kDropGradients:
      AddStep({.kind = action.kind,
               .block = action.block,
               .clock = action.clock,
               .sample_count = action.sample_count,
               .squared_norm = action.squared_norm,
               .trust_ratio = TrustRatio(action.block)},
              outcome);
      gradient_bytes_ -= buffered_bytes_[action.block];
      // A reduced gradient takes memory of its own until it is applied.
      buffered_bytes_[action.block] =
          action.kind == Kind::kReduceGradients
              ? layout_.counts()[action.block] * sizeof(float)
              : 0;
      gradient_bytes_ += buffered_bytes_[action.block];
      return;
    case Kind::kSendNorms:
      // Steps of earlier events count, so all lanes must come to it.
      return AddCountdown(
          [self = shared_from_this(),
           round = ReductionRound{action.clock, action.stage}] {
            self->SendNorms(round);
          },
          /*all_lanes=*/true, outcome);
    case Kind::kRead: {
      PendingCall& call = calls_.at(action.token);
      ReleasePayload(&call);
      call.may_read = true;
      call.taken = nullptr;  // the answer follows
      const WaitingRead read = {action.token, action.clock, action.min_clock,
                                action.max_clock,
                                MonotonicNow() - call.arrived};
      if (call.answer.data != nullptr) return StartSharedRead(read, outcome);
      Unsent* unsent = &unsent_[call.rank];
      unsent->waiting.push_back(read);
      return StartReads(unsent, outcome);
    }
    case Kind::kAck:
      return Acknowledge(action.token, outcome);
    case Kind::kFail:
      return End(action.token, action.status, outcome);
  }
}

void JobShard::ApplySlotAction(const ShardAction& action, Outcome* outcome) {
  const size_t slot = SlotOf(action.block);
  if (action.kind == Kind::kBufferGradient) {
    PendingCall& call = calls_.at(action.token);
    const std::shared_ptr<CallRows>& rows = call.payload.pushed;
    const size_t dense_blocks = call.offsets.size() - 1;
    // In SYNC what others wait for must not count against them, keys included;
    // else these rows are in memory until their lane has got to them, and
    // bounded by it.
    if (config_.controller.mode == ConsistencyMode::kSync) {
      rows->hold = InFlightBudget::Hold();
    } else if (rows->payload_hold.bytes() == 0) {
      rows->payload_hold = std::move(call.payload.hold);
    }
    CallRowSpan range =
        RowsOfSlot(rows, action.position - dense_blocks, action.rank);
    gradient_bytes_ += RowBytes(range);
    return slots_.Buffer(slot, std::move(range));
  }
  if (action.kind == Kind::kReduceGradients) {
    return AddRows(action, slots_.Of(slot), outcome);
  }
  std::vector<CallRowSpan> ranks = slots_.Take(slot);
  for (const CallRowSpan& range : ranks) gradient_bytes_ -= RowBytes(range);
  if (action.kind == Kind::kDropGradients) return;
  AddRows(action, std::move(ranks), outcome);
}

uint64_t JobShard::RowBytes(const CallRowSpan& range) const {
  const size_t row = executor_.tables().dim(range.list->table) *
                     ElementBytes(config_.wire_type);
  return range.count * (sizeof(int64_t) + row);
}

void JobShard::AddRows(const ShardAction& action,
                       std::vector<CallRowSpan> ranks, Outcome* outcome) {
  std::vector<LaneStep>& steps =
      outcome->lanes[slot_lanes_[SlotOf(action.block)]];
  RowsStep* const last = steps.empty() ? nullptr : steps.back().rows.get();
  const bool joins =
      last != nullptr && last->kind == action.kind &&
      last->clock == action.clock &&
      last->sample_count == action.sample_count &&
      std::equal(last->ranks.begin(), last->ranks.end(), ranks.begin(),
                 ranks.end(), [](const CallRowSpan& a, const CallRowSpan& b) {
                   return a.IsFollowedBy(b);
                 });
  if (joins) {
    for (size_t i = 0; i < ranks.size(); ++i) {
      last->ranks[i].count += ranks[i].count;
    }
    return;
  }
  LaneStep& step = steps.emplace_back();
  step.rows = std::make_unique<RowsStep>();
  step.rows->kind = action.kind;
  step.rows->block = action.block;
  step.rows->ranks = std::move(ranks);
  step.rows->clock = action.clock;
  step.rows->sample_count = action.sample_count;
  step.rows->squared_norm = action.squared_norm;
}

void JobShard::StartReads(Unsent* unsent, Outcome* outcome) {
  while (!unsent->waiting.empty() && unsent->bytes < kUnsentBytesMax) {
    const WaitingRead read = unsent->waiting.front();
    unsent->waiting.pop_front();
    StartRead(read, unsent, outcome);
  }
}

PullValues JobShard::MakeResult(const PendingCall& call,
                                const WaitingRead& read) const {
  PullValues result;
  result.blocks = call.pulled;
  result.rows = call.pulled_rows;
  result.min_clock = read.min_clock;
  result.max_clock = read.max_clock;
  result.waited = read.waited;
  result.type = call.pulled_type;
  result.bytes = AnswerBytes(call);
  return result;
}

size_t JobShard::AnswerBytes(const PendingCall& call) const {
  size_t elements = layout_.Offsets(call.pulled).back();
  if (call.pulled_rows != nullptr) {
    for (const RowList& list : call.pulled_rows->lists) {
      elements += list.keys.size() * executor_.tables().dim(list.table);
    }
  }
  return elements * ElementBytes(call.pulled_type);
}

void JobShard::StartSharedRead(const WaitingRead& read, Outcome* outcome) {
  const auto found = calls_.find(read.token);
  SYNCLINE_CHECK(found != calls_.end());
  PullValues result = MakeResult(found->second, read);
  result.area = std::move(found->second.answer);
  PendingCall call = std::move(found->second);
  calls_.erase(found);
  ReadInto(std::move(call), std::move(result), read, outcome);
}

void JobShard::StartRead(const WaitingRead& read, Unsent* unsent,
                         Outcome* outcome) {
  const auto found = calls_.find(read.token);
  SYNCLINE_CHECK(found != calls_.end());
  PullValues result = MakeResult(found->second, read);
  if (absl::Status room = budget_->Acquire(result.bytes, &result.hold);
      !room.ok()) {
    return End(read.token, std::move(room), outcome);
  }
  PendingCall call = std::move(found->second);
  calls_.erase(found);
  if (!result.blocks.empty()) {
    result.buffer = buffers_->Get(result.bytes);
    unsent->bytes += result.bytes;
    result.sent = std::shared_ptr<void>(
        nullptr, [shard = weak_from_this(), rank = call.rank,
                  bytes = result.bytes](void*) {
          if (const auto self = shard.lock()) self->OnSent(rank, bytes);
        });
  }
  ReadInto(std::move(call), std::move(result), read, outcome);
}

void JobShard::ReadInto(PendingCall call, PullValues result,
                        const WaitingRead& read, Outcome* outcome) {
  if (result.blocks.empty()) {
    outcome->ended.push_back(
        {[done = std::move(call.done), result = std::move(result)](
             absl::Status status, PullValues) mutable {
           done(std::move(status), std::move(result));
         },
         absl::OkStatus()});
    return;
  }
  const std::vector<BlockIndex> blocks = result.blocks;
  const std::vector<size_t> offsets = layout_.Offsets(blocks);
  const size_t dense_blocks = offsets.size() - 1;
  std::vector<LanePiece> pieces = CutByLane(result.rows, blocks);
  const auto reading = std::make_shared<PullReading>(
      std::move(call.done), std::move(result), dense_blocks + pieces.size());
  for (size_t i = 0; i < dense_blocks; ++i) {
    AddStep({.kind = Kind::kRead,
             .block = blocks[i],
             .first = offsets[i],
             .reading = reading},
            outcome);
  }
  // Rows may not look expired to a pull that is older than the others.
  const int64_t clock = std::max(read.clock, read.min_clock);
  for (LanePiece& piece : pieces) {
    LaneStep& step = outcome->lanes[piece.lane].emplace_back();
    step.rows = std::make_unique<RowsStep>();
    step.rows->kind = Kind::kRead;
    step.rows->ranks.push_back(std::move(piece.rows));
    step.rows->clock = clock;
    step.rows->reading = reading;
  }
}

std::vector<JobShard::LanePiece> JobShard::CutByLane(
    const std::shared_ptr<CallRows>& rows,
    absl::Span<const BlockIndex> blocks) const {
  std::vector<LanePiece> pieces;
  if (rows == nullptr) return pieces;
  size_t slots = 0;
  for (const RowList& list : rows->lists) slots += list.runs.size();
  for (size_t i = 0; i < slots; ++i) {
    const BlockIndex block = blocks[blocks.size() - slots + i];
    const int lane = slot_lanes_[SlotOf(block)];
    CallRowSpan range = RowsOfSlot(rows, i, 0);
    if (!pieces.empty() && pieces.back().lane == lane &&
        pieces.back().rows.IsFollowedBy(range)) {
      pieces.back().rows.count += range.count;
    } else {
      pieces.push_back({lane, std::move(range)});
    }
  }
  return pieces;
}

void JobShard::OnSent(uint32_t rank, uint64_t bytes) {
  Outcome outcome;
  {
    MutexLock lock(&mu_);
    outcome.lanes.resize(lanes_->count());
    unsent_[rank].bytes -= bytes;
    StartReads(&unsent_[rank], &outcome);
    SubmitSteps(&outcome);
  }
  RunCallbacks(&outcome);
}

void JobShard::EndWaitingReads(
    const std::function<absl::Status(CallToken, const PendingCall&)>& ends,
    Outcome* outcome) {
  for (Unsent& unsent : unsent_) {
    std::deque<WaitingRead> kept;
    for (const WaitingRead& read : unsent.waiting) {
      absl::Status status = ends(read.token, calls_.at(read.token));
      if (status.ok()) {
        kept.push_back(read);
      } else {
        End(read.token, std::move(status), outcome);
      }
    }
    unsent.waiting = std::move(kept);
  }
}

void JobShard::End(CallToken token, absl::Status status, Outcome* outcome) {
  const auto call = calls_.find(token);
  SYNCLINE_CHECK(call != calls_.end());
  ReleasePayload(&call->second);
  outcome->ended.push_back({std::move(call->second.done), std::move(status)});
  calls_.erase(call);
}

void JobShard::Acknowledge(CallToken token, Outcome* outcome) {
  auto call = calls_.extract(token);
  SYNCLINE_CHECK(!call.empty());
  ReleasePayload(&call.mapped());
  AfterSteps(
      [done = std::move(call.mapped().done)]() mutable {
        done(absl::OkStatus(), {});
      },
      outcome);
}

void JobShard::AddStep(LaneStep step, Outcome* outcome) {
  outcome->lanes[lanes_->LaneOf(step.block)].push_back(std::move(step));
}

void JobShard::AfterSteps(Taken then, Outcome* outcome) {
  AddCountdown(std::move(then), /*all_lanes=*/false, outcome);
}

void JobShard::AddCountdown(Taken then, bool all_lanes, Outcome* outcome) {
  auto countdown = std::make_shared<Countdown>();
  countdown->then = std::move(then);
  for (std::vector<LaneStep>& steps : outcome->lanes) {
    if (steps.empty() && !all_lanes) continue;
    ++countdown->left;
    steps.push_back({.kind = Kind::kAccept, .countdown = countdown});
  }
  if (countdown->left > 0) return;
  outcome->ended.push_back(
      {[countdown](absl::Status, PullValues) { countdown->then(); },
       absl::OkStatus()});
}

void JobShard::SubmitSteps(Outcome* outcome) {
  for (int lane = 0; lane < static_cast<int>(outcome->lanes.size()); ++lane) {
    if (outcome->lanes[lane].empty()) continue;
    lanes_->Submit(lane, RunLater(lane, outcome));
  }
}

void JobShard::SubmitFewSteps(Outcome* outcome) {
  if (!AreFew(*outcome)) return SubmitSteps(outcome);
  for (int lane = 0; lane < static_cast<int>(outcome->lanes.size()); ++lane) {
    if (outcome->lanes[lane].empty()) continue;
    if (lanes_->SubmitHere(lane, RunLater(lane, outcome))) {
      outcome->here.push_back(lane);
    }
  }
}

bool JobShard::AreFew(const Outcome& outcome) const {
  uint64_t bytes = 0;
  for (const std::vector<LaneStep>& steps : outcome.lanes) {
    if (steps.size() > kStepsHereMax) return false;
    for (const LaneStep& step : steps) {
      if (step.countdown != nullptr) continue;
      if (step.rows == nullptr) {
        bytes += layout_.counts()[step.block] * sizeof(float);
        continue;
      }
      // A gRPC thread must not wait for a disk.
      if (executor_.tables().spills()) return false;
      for (const CallRowSpan& range : step.rows->ranks)
        bytes += RowBytes(range);
    }
  }
  return bytes <= kBytesHereMax;
}

Lanes::Task JobShard::RunLater(int lane, Outcome* outcome) {
  return [self = shared_from_this(), lane,
          steps = std::exchange(outcome->lanes[lane], {})](
             DenseShard::Scratch* scratch) mutable {
    self->executor_.Run(lane, steps, scratch);
  };
}

void JobShard::RunCallbacks(Outcome* outcome) {
  for (const int lane : outcome->here) lanes_->RunHere(lane);
  for (Ended& ended : outcome->ended) ended.done(ended.status, {});
}

uint64_t JobShard::BytesHeld(const PendingCall& call) {
  const auto of_rows = [](const std::shared_ptr<CallRows>& rows) {
    return rows == nullptr ? 0 : rows->hold.bytes();
  };
  return call.payload.hold.bytes() + call.pull_hold.bytes() +
         of_rows(call.payload.pushed) + of_rows(call.pulled_rows);
}

void JobShard::LimitParked(CallToken token, Outcome* outcome) {
  const auto found = calls_.find(token);
  if (found == calls_.end() || found->second.may_read) return;
  CountParked(&found->second, BytesHeld(found->second));
  if (parked_bytes_ <= budget_->limit_bytes() / 2 ||
      found->second.parked_bytes == 0) {
    return;
  }
  ShardActions ignored;
  controller_.OnCancel(token, &ignored);
  End(token,
      BusyError(absl::StrCat(config_.label, ": calls that must wait hold ",
                             parked_bytes_, " bytes, at most half of ",
                             budget_->limit_bytes(), " are allowed")),
      outcome);
}

// --- Tables ------------------------------------------------------------------

void JobShard::Scan(const Caller& caller, uint32_t table, uint64_t cut_id,
                    const std::string& cursor, ScanDone done) {
  const absl::StatusOr<int> lane = executor_.tables().ScanLane(table, cursor);
  absl::Status status = lane.status();
  if (status.ok()) {
    MutexLock lock(&mu_);
    status =
        controller_.CheckHeldCut(caller.rank(), caller.incarnation(), cut_id);
    // Under the lock: what the cut holds back reaches the lane after this.
    if (status.ok()) {
      lanes_->Submit(
          *lane, [self = shared_from_this(), table, cursor,
                  clock = controller_.min_clock(),
                  done = std::move(done)](DenseShard::Scratch*) mutable {
            // The last clock's rows have no later pull to say it.
            if (self->executor_.non_finite().failed()) {
              return done(self->executor_.non_finite().failure());
            }
            done(self->executor_.tables().Scan(table, cursor, clock));
          });
      return;
    }
  }
  done(status);
}

void JobShard::MaintainTables(absl::Time now) {
  if (executor_.tables().empty()) return;
  MutexLock lock(&mu_);
  // Lanes that are behind are not asked again.
  if (maintaining_lanes_ > 0 || controller_.closed()) return;
  maintaining_lanes_ = lanes_->count();
  for (int lane = 0; lane < lanes_->count(); ++lane) {
    lanes_->Submit(
        lane, [self = shared_from_this(), lane, clock = controller_.min_clock(),
               now](DenseShard::Scratch*) {
          self->executor_.tables().Maintain(lane, clock, now);
          --self->maintaining_lanes_;
        });
  }
}

std::vector<ShardStatus::Table> JobShard::FinalTables() {
  for (int lane = 0; lane < lanes_->count(); ++lane)
    executor_.tables().Sample(lane);
  return executor_.tables().Status();
}

// --- Norms -------------------------------------------------------------------

// Called when all steps of the round have run, and again by Tick; the next come
// after OnSums, so the norms stand still.
void JobShard::SendNorms(const ReductionRound& round) {
  all_reduce_norms_(round, executor_.Norms(round.stage),
                    [self = shared_from_this(), round](Sums sums) {
                      self->OnSums(round, std::move(sums));
                    });
}

void JobShard::OnSums(const ReductionRound& round, Sums sums) {
  Outcome outcome;
  {
    MutexLock lock(&mu_);
    // The lanes may be gone.
    if (controller_.closed()) return;
    if (sums.ok()) {
      ShardActions actions;
      controller_.OnReduced(round, UseSums(round, *sums), MonotonicNow(),
                            &actions);
      ApplyActions(actions, &outcome);
      SubmitSteps(&outcome);
    } else {
      controller_.OnReductionDelayed(round, sums.status());
      unsent_norms_ = round;
      norm_retry_at_ = MonotonicNow() + kNormRetryDelay;
    }
  }
  RunCallbacks(&outcome);
}

// The next clock may skip blocks that nobody sends: theirs must be 0.
double JobShard::UseSums(const ReductionRound& round,
                         absl::Span<const double> sums) {
  executor_.ClearNorms(round.stage);
  if (round.stage == ReductionStage::kGradient) return sums[0];
  trust_ratios_.clear();
  for (size_t i = 0; i + 1 < sums.size(); i += 2) {
    trust_ratios_.push_back(LambTrustRatio({sums[i], sums[i + 1]}));
  }
  return -1;
}

double JobShard::TrustRatio(BlockIndex block) const {
  const uint32_t tensor = layout_.map().blocks()[layout_.ids()[block]].tensor;
  return tensor < trust_ratios_.size() ? trust_ratios_[tensor] : 1;
}

// --- Status ------------------------------------------------------------------

ShardStatus::Job JobShard::Status() const {
  MutexLock lock(&mu_);
  ShardStatus::Job status;
  status.set_job_id(config_.job_id);
  status.set_block_count(executor_.dense().block_count());
  status.set_blocks_initialised(controller_.initialised_count());
  status.set_value_bytes(executor_.dense().value_bytes());
  status.set_slot_bytes(executor_.dense().slot_bytes());
  status.set_fold_bytes(gradient_bytes_);
  for (ShardStatus::Table& table : executor_.tables().Status()) {
    *status.add_tables() = std::move(table);
  }
  status.set_parked_pulls(static_cast<uint32_t>(controller_.parked_pulls()));
  status.set_parked_pushes(static_cast<uint32_t>(controller_.parked_pushes()));
  for (uint32_t rank = 0; rank < controller_.worker_count(); ++rank) {
    const PushLedger& progress = controller_.worker(rank);
    ShardStatus::Worker* worker = status.add_workers();
    worker->set_rank(rank);
    worker->set_closed_clocks(progress.closed());
    worker->set_blocks_received(progress.received_count());
    worker->set_blocks_expected(progress.expected_count());
    worker->set_finished(progress.finished());
    worker->set_activity(controller_.ActivityText(rank));
    worker->set_non_finite(executor_.non_finite().CountOf(rank) +
                           LeftOutBlocks(rank));
  }
  if (config_.controller.evaluator.has_value()) {
    ShardStatus::Worker* evaluator = status.add_workers();
    evaluator->set_rank(controller_.worker_count());
    evaluator->set_finished(true);  // nobody waits for pushes of it
    evaluator->set_activity(
        controller_.ActivityText(controller_.worker_count()));
  }
  status.set_skipped_clocks(controller_.skipped_clocks());
  const absl::Time moved_at = controller_.moved_at();
  status.set_quiet_seconds(
      moved_at == absl::InfinitePast()
          ? -1
          : absl::ToDoubleSeconds(
                std::max(MonotonicNow() - moved_at, absl::ZeroDuration())));
  return status;
}

uint64_t JobShard::SkippedClocks() const {
  MutexLock lock(&mu_);
  return controller_.skipped_clocks();
}

uint64_t JobShard::DroppedBlocks() const {
  const OnNonFinite policy = config_.shard.on_non_finite;
  const bool sync = config_.controller.mode == ConsistencyMode::kSync;
  // SYNC with SKIP_STEP has skipped the clock of what was found.
  if (policy == OnNonFinite::kFailJob ||
      (policy == OnNonFinite::kSkipStep && sync)) {
    return 0;
  }
  MutexLock lock(&mu_);
  uint64_t dropped = executor_.non_finite().total();
  for (uint32_t rank = 0; rank < controller_.worker_count(); ++rank) {
    dropped += LeftOutBlocks(rank);
  }
  return dropped;
}

// Nothing of such a push has come: it counts as all dense blocks of the shard.
uint64_t JobShard::LeftOutBlocks(uint32_t rank) const {
  const uint64_t blocks = std::max<uint64_t>(1, layout_.counts().size());
  return controller_.left_out_pushes(rank) * blocks;
}

uint64_t JobShard::NewDuplicateBlocks() {
  MutexLock lock(&mu_);
  const uint64_t before =
      std::exchange(told_duplicates_, controller_.duplicate_blocks());
  return told_duplicates_ - before;
}

uint64_t JobShard::NewAbandonedCuts() {
  MutexLock lock(&mu_);
  const uint64_t before =
      std::exchange(told_abandoned_, controller_.abandoned_cuts());
  return told_abandoned_ - before;
}

uint64_t JobShard::NewSkippedClocks() {
  MutexLock lock(&mu_);
  const uint64_t before =
      std::exchange(told_skipped_, controller_.skipped_clocks());
  return told_skipped_ - before;
}

}  // namespace syncline::ps
