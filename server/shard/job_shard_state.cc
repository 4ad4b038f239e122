// JobShard's state at a cut: how it leaves the shard, and how another shard
// begins with it.

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "server/shard/job_shard.h"
#include "server/shard/quorum_agreement.h"
#include "server/shard/shard_exporter.h"
#include "server/shard/shard_importer.h"

namespace syncline::ps {

absl::Status JobShard::Export(uint64_t cut_id, const ShardSelection& selection,
                              ShardStateSink* sink) {
  absl::StatusOr<ControllerState> state;
  int64_t total_clocks = 0;
  {
    MutexLock lock(&mu_);
    state = controller_.Export(cut_id);
    total_clocks = total_clocks_.value_or(0);
  }
  SYNCLINE_RETURN_IF_ERROR(state.status());
  ShardExporter exporter(
      &config_, &layout_, &executor_, lanes_,
      [&](int lane, ShardExporter::Task task) {
        return RunAtCut(cut_id, lane, task);
      },
      sink);
  return exporter.Export(*state, cut_id, total_clocks, selection);
}

absl::Status JobShard::RunAtCut(uint64_t cut_id, int lane,
                                absl::FunctionRef<absl::Status()> task) {
  return RunInLane(
      [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
        return controller_.CheckHeldCut(cut_id);
      },
      lane, task);
}

absl::Status JobShard::RunWhileAway(int lane,
                                    absl::FunctionRef<absl::Status()> task) {
  return RunInLane(
      [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return CheckAwayLocked(); }, lane,
      task);
}

absl::Status JobShard::RunInLane(absl::FunctionRef<absl::Status()> check,
                                 int lane,
                                 absl::FunctionRef<absl::Status()> task) {
  Mutex mu;
  CondVar ended;
  bool done = false;
  absl::Status status;
  bool here = false;
  {
    // Under the lock: what the cut holds back reaches the lane after this.
    MutexLock lock(&mu_);
    SYNCLINE_RETURN_IF_ERROR(check());
    here = lanes_->SubmitHere(lane, [&](DenseUpdater::Scratch*) {
      absl::Status result = task();
      MutexLock inner(&mu);
      status = std::move(result);
      done = true;
      ended.Signal();
    });
  }
  if (here) lanes_->RunHere(lane);
  MutexLock lock(&mu);
  while (!done) ended.WaitUntil(&mu, MonotonicNow() + absl::Minutes(1));
  return status;
}

absl::StatusOr<std::optional<JobShard::Proposal>> JobShard::ProposedRegime(
    const Caller& caller) const {
  SYNCLINE_RETURN_IF_ERROR(
      config_.controller.CheckCaller(caller.rank(), caller.incarnation()));
  MutexLock lock(&mu_);
  const CutSchedule::Cut* const cut = controller_.regime_cut();
  std::optional<Proposal> proposal;
  if (cut != nullptr && cut->regime.has_value()) {
    proposal.emplace();
    proposal->cut_id = cut->id;
    proposal->regime = *cut->regime;
  }
  return proposal;
}

absl::StatusOr<ControllerState> JobShard::StateAtCut(
    uint64_t cut_id, int64_t* total_clocks) const {
  MutexLock lock(&mu_);
  *total_clocks = total_clocks_.value_or(0);
  return controller_.Export(cut_id);
}

absl::Status JobShard::CheckAway() const {
  MutexLock lock(&mu_);
  return CheckAwayLocked();
}

absl::Status JobShard::CheckAwayLocked() const {
  if (away_since_.has_value() || controller_.closed()) {
    return controller_.CheckOpen();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      config_.label, ": the state is here, and no worker has another one"));
}

// A pull of nothing waits for the cut at which the state has gone, and asks for
// none of it.
absl::Status JobShard::CheckHere(const ShardCall& call) const {
  if (!away_since_.has_value()) return absl::OkStatus();
  const bool pushes = call.push.has_value() && call.push->clock >= *away_since_;
  const bool pulls = call.pull.has_value() && !call.pull->blocks.empty() &&
                     call.pull->clock >= *away_since_;
  if (!pushes && !pulls) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      config_.label, ": ", config_.controller.caller(call.rank).name,
      pushes ? " pushes clock " : " pulls the values of clock ",
      pushes ? call.push->clock : call.pull->clock,
      ", but the workers have the state since clock ", *away_since_));
}

absl::Status JobShard::TakeBack(const TakenState& state,
                                const RegimeSchedule& regimes) {
  StepBatch batch(lane_count_);
  absl::Status status;
  {
    MutexLock lock(&mu_);
    SYNCLINE_RETURN_IF_ERROR(CheckAwayLocked());
    ConsistencyController::Options options = config_.controller;
    options.regimes = regimes;
    ConsistencyController controller(std::move(options));
    const absl::Time now = MonotonicNow();
    SYNCLINE_RETURN_IF_ERROR(
        controller.Import(state.controller, /*begins_attempt=*/false, now));
    SYNCLINE_RETURN_IF_ERROR(SetTotalClocks(state.total_clocks));
    // Calls that are parked here wait for a clock that the job has passed.
    ShardActions actions;
    controller_.Close(
        absl::FailedPreconditionError(absl::StrCat(
            config_.label, ": the job has gone on without this shard")),
        &actions);
    ApplyActions(actions, &batch);
    const int64_t known =
        layout_.regimes().At(RegimeSchedule::kNever).first_clock;
    for (const TrainingRegime& regime : regimes.regimes()) {
      if (regime.first_clock > known) layout_.regimes().Add(regime);
    }
    // Another one, for the clocks from here on: it has members that are const.
    std::destroy_at(&controller_);
    std::construct_at(&controller_, std::move(controller));
    executor_.non_finite().Import(state.non_finite, state.non_finite_total);
    told_duplicates_ = controller_.duplicate_blocks();
    told_abandoned_ = controller_.abandoned_cuts();
    told_skipped_ = controller_.skipped_clocks();
    away_since_.reset();
    SubmitSteps(&batch);
  }
  batch.RunCallbacks();
  return absl::OkStatus();
}

absl::Status JobShard::CheckAnnounced(uint64_t cut_id) const {
  MutexLock lock(&mu_);
  return controller_.CheckAnnounced(cut_id);
}

absl::Status JobShard::CheckHeldCut(uint64_t cut_id) const {
  MutexLock lock(&mu_);
  return controller_.CheckHeldCut(cut_id);
}

absl::Status JobShard::CloseAtCut(uint64_t cut_id, const absl::Status& status) {
  StepBatch batch(lane_count_);
  {
    MutexLock lock(&mu_);
    SYNCLINE_RETURN_IF_ERROR(controller_.CheckHeldCut(cut_id));
    CloseLocked(status, &batch);
  }
  batch.RunCallbacks();
  if (quorum_ != nullptr) quorum_->Close(status);
  return absl::OkStatus();
}

absl::Status JobShard::Import(const ShardStart& start) {
  {
    MutexLock lock(&mu_);
    SYNCLINE_RETURN_IF_ERROR(controller_.CheckFresh());
  }
  const absl::Time now = MonotonicNow();
  ShardImporter importer(&config_, &layout_, &executor_, start.options);
  absl::Status status;
  for (const auto& source : start.states) {
    if (status.ok()) status = importer.Read(source.get(), now);
  }
  if (status.ok()) status = importer.Finish();
  if (status.ok()) {
    status = GoOnFrom(importer,
                      start.options.begins_attempt || start.options.values_only,
                      now);
  }
  executor_.tables().SampleImported();
  // It has a part of the state, which nobody may read.
  if (!status.ok()) Close(status);
  return status;
}

absl::Status JobShard::GoOnFrom(const ShardImporter& importer,
                                bool begins_attempt, absl::Time now) {
  MutexLock lock(&mu_);
  // An attempt may have more clocks than the one before it: the chief says.
  if (!begins_attempt) {
    SYNCLINE_RETURN_IF_ERROR(SetTotalClocks(importer.total_clocks()));
  }
  SYNCLINE_RETURN_IF_ERROR(
      controller_.Import(importer.controller(), begins_attempt, now));
  // An earlier process has told them.
  told_duplicates_ = controller_.duplicate_blocks();
  told_abandoned_ = controller_.abandoned_cuts();
  told_skipped_ = controller_.skipped_clocks();
  return absl::OkStatus();
}

}  // namespace syncline::ps
