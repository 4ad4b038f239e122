// JobShard's state at a cut: how it leaves the shard, and how another shard
// begins with it.

#include <algorithm>
#include <utility>

#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "server/shard/job_shard.h"
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
  Mutex mu;
  CondVar ended;
  bool done = false;
  absl::Status status;
  bool here = false;
  {
    // Under the lock: what the cut holds back reaches the lane after this.
    MutexLock lock(&mu_);
    SYNCLINE_RETURN_IF_ERROR(controller_.CheckHeldCut(cut_id));
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
    status = GoOnFrom(importer, start.options.begins_attempt, now);
  }
  executor_.tables().SampleImported();
  // It has a part of the state, which nobody may read.
  if (!status.ok()) Close(status);
  return status;
}

absl::Status JobShard::GoOnFrom(const ShardImporter& importer,
                                bool begins_attempt, absl::Time now) {
  MutexLock lock(&mu_);
  SYNCLINE_RETURN_IF_ERROR(SetTotalClocks(importer.total_clocks()));
  SYNCLINE_RETURN_IF_ERROR(
      controller_.Import(importer.controller(), begins_attempt, now));
  // An earlier process has told them.
  told_duplicates_ = controller_.duplicate_blocks();
  told_abandoned_ = controller_.abandoned_cuts();
  told_skipped_ = controller_.skipped_clocks();
  return absl::OkStatus();
}

}  // namespace syncline::ps
