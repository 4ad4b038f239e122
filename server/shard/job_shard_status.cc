// The reports of a JobShard: its status, and counts for metrics.

#include <algorithm>
#include <utility>

#include "common/base/clock.h"
#include "server/shard/job_shard.h"

namespace syncline::ps {

ShardStatus::Job JobShard::Status() const {
  MutexLock lock(&mu_);
  ShardStatus::Job status;
  status.set_job_id(config_.job_id);
  status.set_shard(config_.shard);
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
    worker->set_left_behind_clocks(controller_.behind(rank).clocks);
    worker->set_late_samples(controller_.behind(rank).samples);
    worker->set_non_finite(executor_.non_finite().CountOf(rank) +
                           LeftOutBlocks(rank));
  }
  if (config_.controller.evaluator.has_value()) {
    ShardStatus::Worker* evaluator = status.add_workers();
    evaluator->set_rank(controller_.worker_count());
    evaluator->set_finished(true);  // no pull waits for its pushes
    evaluator->set_activity(
        controller_.ActivityText(controller_.worker_count()));
  }
  status.set_skipped_clocks(controller_.skipped_clocks());
  status.set_dropped_blocks(DroppedBlocksLocked());
  const absl::Time moved_at = controller_.moved_at();
  status.set_quiet_seconds(
      moved_at == absl::InfinitePast()
          ? -1
          : absl::ToDoubleSeconds(
                std::max(MonotonicNow() - moved_at, absl::ZeroDuration())));
  return status;
}

JobShard::Standing JobShard::StandingAt(absl::Time now) const {
  MutexLock lock(&mu_);
  Standing standing;
  standing.min_clock = controller_.min_clock();
  standing.staleness_bound = controller_.staleness_bound();
  standing.max_clock = standing.min_clock;
  for (uint32_t rank = 0; rank < controller_.worker_count(); ++rank) {
    standing.blames.push_back(controller_.blame(rank, now));
    standing.behind.push_back(controller_.behind(rank));
    const PushLedger& worker = controller_.worker(rank);
    if (worker.finished()) continue;
    standing.max_clock = std::max(standing.max_clock, worker.closed());
  }
  return standing;
}

bool JobShard::HasBlame() const {
  MutexLock lock(&mu_);
  return controller_.regimes().AnySync();
}

void JobShard::AddBlame(absl::Time now, PsReport* report) const {
  MutexLock lock(&mu_);
  if (!controller_.regimes().AnySync()) return;
  for (uint32_t rank = 0; rank < controller_.worker_count(); ++rank) {
    const StragglerLog::Blame blame = controller_.blame(rank, now);
    const ConsistencyController::Behind& behind = controller_.behind(rank);
    Blame* const of_rank = report->add_blame();
    of_rank->set_rank(rank);
    of_rank->set_clocks(blame.clocks);
    of_rank->set_seconds(absl::ToDoubleSeconds(blame.time));
    of_rank->set_left_behind_clocks(behind.clocks);
    of_rank->set_dropped_samples(behind.samples);
  }
}

uint64_t JobShard::SkippedClocks() const {
  MutexLock lock(&mu_);
  return controller_.skipped_clocks();
}

uint64_t JobShard::DroppedBlocks() const {
  MutexLock lock(&mu_);
  return DroppedBlocksLocked();
}

uint64_t JobShard::DroppedBlocksLocked() const {
  const OnNonFinite policy = config_.update.on_non_finite;
  const bool sync = controller_.regimes().AllSync();
  // SYNC with SKIP_STEP has skipped the clock of what was found.
  if (policy == OnNonFinite::kFailJob ||
      (policy == OnNonFinite::kSkipStep && sync)) {
    return 0;
  }
  uint64_t dropped = executor_.non_finite().total();
  for (uint32_t rank = 0; rank < controller_.worker_count(); ++rank) {
    dropped += LeftOutBlocks(rank);
  }
  return dropped;
}

// A push that was left out counts as all dense blocks of the shard.
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
