#include "server/shard/job_shard.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/wire/smallest_cut.h"
#include "server/shard/quorum_agreement.h"

namespace syncline::ps {
namespace {

using Kind = ShardAction::Kind;

constexpr absl::Duration kNormRetryDelay = absl::Milliseconds(200);

}  // namespace

JobShard::JobShard(const JobConfig& config, const Resources& resources,
                   AllReduceNorms all_reduce_norms,
                   std::unique_ptr<EmbeddingTables> tables)
    : config_(config),
      layout_(LayoutOf(config)),
      lanes_(resources.lanes),
      lane_count_(resources.lanes->count()),
      budget_(resources.budget),
      buffers_(resources.buffers),
      all_reduce_norms_(std::move(all_reduce_norms)),
      executor_(&config_, &layout_, std::move(tables)),
      controller_(config.controller),
      windows_(config.controller.caller_count()),
      buffered_bytes_(layout_.counts().size()),
      slots_(config.controller.slot_count) {
  const TrainingRegime& regime = config.regimes.regimes().back();
  if (!regime.has_ps()) away_since_ = regime.first_clock;
  for (uint32_t table = 0; table < layout_.tables().size(); ++table) {
    const TableMap& map = layout_.tables()[table].map;
    for (const uint32_t slot : map.shard_slots(config.shard)) {
      slot_lanes_.push_back(executor_.tables().LaneOf(table, slot));
    }
  }
}

// --- Events ------------------------------------------------------------------

void JobShard::Init(const Caller& caller, std::vector<BlockIndex> blocks,
                    int64_t total_clocks, Payload payload, Done done) {
  StepBatch batch(lane_count_);
  {
    MutexLock lock(&mu_);
    const CallToken token = calls_.Add();
    PendingCall& call = calls_.At(token);
    call.payload = std::move(payload);
    call.offsets = layout_.Offsets(blocks);
    call.done = std::move(done);
    absl::Status accepted;
    // The controller refuses the others.
    if (controller_.CheckChief(caller.rank(), caller.incarnation()).ok()) {
      const bool is_first = !total_clocks_.has_value();
      accepted = SetTotalClocks(total_clocks);
      if (accepted.ok() && is_first) controller_.GoOnTo(total_clocks);
    }
    if (!accepted.ok()) {
      End(token, std::move(accepted), &batch);
    } else {
      ShardActions actions;
      controller_.OnInit(token, caller.rank(), caller.incarnation(), blocks,
                         MonotonicNow(), &actions);
      ApplyActions(actions, &batch);
    }
    SubmitSteps(&batch);
  }
  batch.RunCallbacks();
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
  if (config_.controller.leases && total_clocks == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(config_.label,
                     ": total_clocks is 0, but the clocks of leased data are "
                     "dealt to the last"));
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
  StepBatch batch(lane_count_);
  std::vector<int> here;
  CallToken token = 0;
  {
    MutexLock lock(&mu_);
    token =
        AddCall(call, std::move(payload), std::move(taken), std::move(done));
    call.token = token;
    ShardActions actions;
    if (absl::Status here = CheckHere(call); !here.ok()) {
      actions.push_back(
          {.kind = Kind::kFail, .token = token, .status = std::move(here)});
      // Duplicate and unauthorised calls keep their own reply; only new
      // gradients are refused.
    } else if (!room.ok() && controller_.BringsGradients(call)) {
      actions.push_back(
          {.kind = Kind::kFail, .token = token, .status = std::move(room)});
    } else {
      controller_.OnCall(std::move(call), calls_.At(token).arrived, &actions);
    }
    ApplyActions(actions, &batch);
    LimitParked(token, &batch);
    here = SubmitFewSteps(&batch);
  }
  for (const int lane : here) lanes_->RunHere(lane);
  batch.RunCallbacks();
  return token;
}

CallToken JobShard::AddCall(const ShardCall& call, Payload payload, Taken taken,
                            Done done) {
  const CallToken token = calls_.Add();
  PendingCall& pending = calls_.At(token);
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
    pending.pulled_form = FormOf(*call.pull);
  }
  // An answer larger than its shared-memory area is sent over the network.
  if (AnswerBytes(pending) > pending.answer.bytes) pending.answer = {};
  pending.taken = std::move(taken);
  pending.done = std::move(done);
  return token;
}

void JobShard::Cancel(CallToken token) {
  StepBatch batch(lane_count_);
  {
    MutexLock lock(&mu_);
    ShardActions actions;
    controller_.OnCancel(token, &actions);
    ApplyActions(actions, &batch);
    EndWaitingReads(
        [token](CallToken waiting, const PendingCall&) {
          return waiting == token ? absl::CancelledError("the caller gave up")
                                  : absl::OkStatus();
        },
        &batch);
  }
  batch.RunCallbacks();
}

absl::Status JobShard::BeginCut(const Caller& caller, uint64_t cut_id,
                                std::vector<int64_t> clocks,
                                absl::Duration hold, CutUse use,
                                std::optional<TrainingRegime> regime) {
  if (TakesSnapshot(use) && snapshots_ == nullptr) {
    return absl::UnimplementedError(
        absl::StrCat(config_.label, ": a ", CutUseName(use),
                     " cut takes a snapshot, which this ps cannot"));
  }
  StepBatch batch(lane_count_);
  absl::Status status;
  if (snapshots_ != nullptr) {
    status = snapshots_->CheckAnnouncement(cut_id, use);
    // Without the clocks the announcer does not try again.
    if (absl::IsUnavailable(status)) {
      return absl::FailedPreconditionError(status.message());
    }
    if (!status.ok()) return WithSmallestCut(std::move(status), clocks);
  }
  {
    MutexLock lock(&mu_);
    ShardActions actions;
    status = controller_.OnBeginCut(caller.rank(), caller.incarnation(), cut_id,
                                    std::move(clocks), hold, MonotonicNow(),
                                    &actions, use, std::move(regime));
    if (!status.ok() && !controller_.smallest_cut().empty()) {
      status = WithSmallestCut(std::move(status), controller_.smallest_cut());
    }
    ApplyActions(actions, &batch);
    SubmitSteps(&batch);
  }
  batch.RunCallbacks();
  return status;
}

absl::Status JobShard::EndCut(const Caller& caller, uint64_t cut_id,
                              bool commit) {
  StepBatch batch(lane_count_);
  absl::Status status;
  {
    MutexLock lock(&mu_);
    ShardActions actions;
    const size_t before = controller_.regimes().regimes().size();
    status = controller_.OnEndCut(caller.rank(), caller.incarnation(), cut_id,
                                  MonotonicNow(), &actions, commit);
    // Before the actions that follow from it reach the lanes.
    if (controller_.regimes().regimes().size() > before) {
      const TrainingRegime& regime = controller_.regimes().regimes().back();
      layout_.regimes().Add(regime);
      if (!regime.has_ps()) away_since_ = regime.first_clock;
    }
    ApplyActions(actions, &batch);
    SubmitSteps(&batch);
  }
  batch.RunCallbacks();
  return status;
}

absl::StatusOr<RegimeSchedule> JobShard::Regimes(const Caller& caller) const {
  SYNCLINE_RETURN_IF_ERROR(
      config_.controller.CheckCaller(caller.rank(), caller.incarnation()));
  MutexLock lock(&mu_);
  return controller_.regimes();
}

absl::Status JobShard::ReportActivity(
    const Caller& caller, ConsistencyController::Activity activity) {
  MutexLock lock(&mu_);
  return controller_.OnActivity(caller.rank(), caller.incarnation(),
                                std::move(activity), MonotonicNow());
}

void JobShard::Tick(absl::Time now, absl::Duration frozen) {
  StepBatch batch(lane_count_);
  std::optional<ReductionRound> retry;
  {
    MutexLock lock(&mu_);
    ShardActions actions;
    if (frozen > absl::ZeroDuration()) {
      controller_.OnFrozen(frozen, now);
      calls_.ExtendDeadlines(frozen);
    }
    controller_.OnTick(now, &actions);
    ApplyActions(actions, &batch);
    EndWaitingReads(
        [this, now](CallToken, const PendingCall& call) {
          if (call.deadline > now) return absl::OkStatus();
          return absl::DeadlineExceededError(absl::StrCat(
              config_.label, ": ", config_.controller.caller(call.rank).name,
              " does not take the answers that it has"));
        },
        &batch);
    SubmitSteps(&batch);
    if (norm_retry_at_ <= now) retry = std::exchange(unsent_norms_, {});
  }
  batch.RunCallbacks();
  if (retry.has_value()) SendNorms(*retry);
  if (quorum_ != nullptr) TickQuorum(now, frozen);
}

void JobShard::Close(const absl::Status& status) {
  StepBatch batch(lane_count_);
  {
    MutexLock lock(&mu_);
    CloseLocked(status, &batch);
  }
  batch.RunCallbacks();
  if (quorum_ != nullptr) quorum_->Close(status);
}

void JobShard::CloseLocked(const absl::Status& status, StepBatch* batch) {
  unsent_norms_.reset();
  ShardActions actions;
  controller_.Close(status, &actions);
  ApplyActions(actions, batch);
  EndWaitingReads([&](CallToken, const PendingCall&) { return status; }, batch);
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
                  done = std::move(done)](DenseUpdater::Scratch*) mutable {
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
  maintaining_lanes_ = lane_count_;
  for (int lane = 0; lane < lane_count_; ++lane) {
    lanes_->Submit(
        lane, [self = shared_from_this(), lane, clock = controller_.min_clock(),
               now](DenseUpdater::Scratch*) {
          self->executor_.tables().Maintain(lane, clock, now);
          --self->maintaining_lanes_;
        });
  }
}

std::vector<ShardStatus::Table> JobShard::FinalTables() {
  for (int lane = 0; lane < lane_count_; ++lane)
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
  StepBatch batch(lane_count_);
  {
    MutexLock lock(&mu_);
    // The lanes may be gone.
    if (controller_.closed()) return;
    if (sums.ok()) {
      ShardActions actions;
      controller_.OnReduced(round, UseSums(round, *sums), MonotonicNow(),
                            &actions);
      ApplyActions(actions, &batch);
      SubmitSteps(&batch);
    } else {
      controller_.OnReductionDelayed(round, sums.status());
      unsent_norms_ = round;
      norm_retry_at_ = MonotonicNow() + kNormRetryDelay;
    }
  }
  batch.RunCallbacks();
}

// Clears this round's norms: a block that no worker sends in the next clock has
// a norm of 0 there.
double JobShard::UseSums(const ReductionRound& round,
                         absl::Span<const double> sums) {
  executor_.ClearNorms(round.stage);
  if (round.stage == ReductionStage::kGradient) return sums[0];
  trust_ratios_ = LambTrustRatios(sums);
  return -1;
}

}  // namespace syncline::ps
