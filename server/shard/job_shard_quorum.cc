// JobShard's clocks that end without some of the workers, and the clocks of
// workers that are lost.

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/system/log.h"
#include "server/shard/job_shard.h"
#include "server/shard/quorum_agreement.h"

namespace syncline::ps {
namespace {

constexpr absl::Duration kQuorumRetryDelay = absl::Milliseconds(200);

}  // namespace

void JobShard::SendCloses(ConsistencyController::Closes closes, bool overdue) {
  if (quorum_ == nullptr) return;
  const int64_t clock = closes.clock;
  if (quorum_->loses_workers()) {
    MutexLock lock(&mu_);
    quorum_retry_at_ =
        std::min(quorum_retry_at_, MonotonicNow() + kQuorumRetryDelay);
  }
  quorum_->OnCloses(
      clock, std::move(closes.ranks), overdue,
      [self = shared_from_this(), clock](const QuorumAgreement::Set& set) {
        self->OnQuorum(clock, set);
      });
}

void JobShard::OnQuorum(int64_t clock, const QuorumAgreement::Set& set) {
  StepBatch batch(lane_count_);
  {
    MutexLock lock(&mu_);
    // The lanes may be gone.
    if (controller_.closed()) return;
    ShardActions actions;
    absl::Status status = set.status();
    if (status.ok()) {
      status = controller_.OnQuorum(clock, set->ranks, MonotonicNow(), &actions,
                                    set->removed);
    }
    ApplyActions(actions, &batch);
    SubmitSteps(&batch);
    // A second report of a clock may come when its set is long known.
    const auto open = controller_.OpenCloses();
    if (!status.ok() && open.has_value() && open->clock == clock) {
      controller_.OnQuorumDelayed(clock, status);
      overdue_ = {};
      quorum_retry_at_ = MonotonicNow() + kQuorumRetryDelay;
      LogWarning("the set of a clock is not known yet")
          .Job(config_.job_id)
          .Field("clock", clock)
          .Status(status);
    }
  }
  batch.RunCallbacks();
}

void JobShard::TickQuorum(absl::Time now, absl::Duration frozen) {
  quorum_->Tick(now, frozen);
  std::optional<ConsistencyController::Closes> again;
  {
    MutexLock lock(&mu_);
    if (quorum_retry_at_ > now) return;
    quorum_retry_at_ = absl::InfiniteFuture();
    again = controller_.OpenCloses();
    if (!again.has_value()) return;
    const bool is_told = again->clock == overdue_.clock &&
                         again->ranks.size() == overdue_.ranks.size();
    if (is_told) return;
    overdue_ = *again;
  }
  SendCloses(*std::move(again), /*overdue=*/quorum_->loses_workers());
}

absl::StatusOr<ConsistencyController::LostLeases> JobShard::LoseWorker(
    uint32_t rank) {
  StepBatch batch(lane_count_);
  absl::StatusOr<ConsistencyController::LostLeases> leases;
  {
    MutexLock lock(&mu_);
    ShardActions actions;
    leases = controller_.OnWorkerLost(rank, MonotonicNow(), &actions);
    ApplyActions(actions, &batch);
    SubmitSteps(&batch);
  }
  batch.RunCallbacks();
  return leases;
}

absl::Status JobShard::ReturnLeases(uint32_t rank,
                                    absl::Span<const int64_t> clocks) {
  StepBatch batch(lane_count_);
  absl::Status status;
  {
    MutexLock lock(&mu_);
    ShardActions actions;
    status = controller_.OnReturned(rank, clocks, MonotonicNow(), &actions);
    ApplyActions(actions, &batch);
    SubmitSteps(&batch);
  }
  batch.RunCallbacks();
  return status;
}

}  // namespace syncline::ps
