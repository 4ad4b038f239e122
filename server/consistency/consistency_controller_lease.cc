// ConsistencyController's part of jobs with leased data.

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/regime/leased_clock.h"
#include "server/consistency/consistency_controller.h"

namespace syncline::ps {

void ConsistencyController::BeginLeases(int64_t total_clocks) {
  const int64_t start = workers_[0].closed();
  for (uint32_t rank = 0; rank < workers_.size(); ++rank) {
    const int64_t first = FirstLeasedClock(start, rank, total_clocks);
    workers_[rank].ImportAhead(start, first, first == total_clocks);
  }
  if (leased_.has_value()) leased_->Begin(start, total_clocks);
}

absl::StatusOr<ConsistencyController::LostLeases>
ConsistencyController::OnWorkerLost(uint32_t rank, absl::Time now,
                                    ShardActions* out) {
  SYNCLINE_RETURN_IF_ERROR(closed_);
  if (rank == 0 || rank >= workers_.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(options_.label, ": rank ", rank, " of ", workers_.size(),
                     " cannot be taken out"));
  }
  if (!options_.leases || !initialised()) {
    return absl::FailedPreconditionError(absl::StrCat(
        options_.label, ": ", options_.workers[rank].name,
        " cannot be taken out: ",
        options_.leases ? absl::StrCat("not here yet: ", NotBegun())
                        : "the data of the job are not leased"));
  }
  PushLedger& worker = workers_[rank];
  if (FindLost(rank) == nullptr) {
    auto lost = lost_ == nullptr ? std::vector<LostWorker>() : *lost_;
    lost.push_back({.rank = rank, .first_clock = worker.cut_from()});
    lost_ = std::make_shared<const std::vector<LostWorker>>(std::move(lost));
    lost_leases_[rank] = {.begun_until = worker.cut_from(),
                          .whole_until = worker.pushed(),
                          .leased = leased_.has_value()
                                        ? leased_->Of(rank)
                                        : std::vector<int64_t>()};
    worker.Abandon();
    EndCallsOf(rank, LostError(lost_->back()), out);
    changed_ = moved_ = true;
    Settle(now, out);
  }
  return lost_leases_.at(rank);
}

absl::Status ConsistencyController::OnReturned(uint32_t rank,
                                               absl::Span<const int64_t> clocks,
                                               absl::Time now,
                                               ShardActions* out) {
  SYNCLINE_RETURN_IF_ERROR(closed_);
  const auto found = lost_leases_.find(rank);
  if (found == lost_leases_.end()) {
    return absl::FailedPreconditionError(
        absl::StrCat(options_.label, ": clocks of rank ", rank,
                     " return, which is no worker that is lost"));
  }
  LostLeases& leases = found->second;
  if (leases.returned.has_value()) return absl::OkStatus();
  const bool ascend =
      std::adjacent_find(clocks.begin(), clocks.end(),
                         std::greater_equal<>()) == clocks.end();
  if (!ascend || (!clocks.empty() && clocks[0] < leases.begun_until)) {
    return absl::InvalidArgumentError(absl::StrCat(
        options_.label, ": clocks ", absl::StrJoin(clocks, ","), " of ",
        options_.workers[rank].name, " return, of which those below ",
        leases.begun_until, " have begun here"));
  }
  leases.returned.emplace(clocks.begin(), clocks.end());
  if (leased_.has_value()) leased_->Return(rank, clocks);
  if (clocks.empty()) {
    workers_[rank].Leave();
  } else {
    workers_[rank].GoOnAt(clocks[0]);
  }
  changed_ = moved_ = true;
  Settle(now, out);
  return absl::OkStatus();
}

bool ConsistencyController::AwaitsReturn(uint32_t rank) const {
  const auto found = lost_leases_.find(rank);
  return found != lost_leases_.end() && !found->second.returned.has_value();
}

std::vector<ReturnedLease> ConsistencyController::ReturnedBelow(
    int64_t until) const {
  std::vector<ReturnedLease> returned;
  for (const auto& [rank, leases] : lost_leases_) {
    if (!leases.returned.has_value()) continue;
    const std::vector<int64_t>& clocks = *leases.returned;
    for (size_t i = 0; i < clocks.size() && clocks[i] < until; ++i) {
      if (workers_[rank].finished() || clocks[i] < workers_[rank].closed()) {
        continue;
      }
      returned.push_back(
          {.rank = rank,
           .clock = clocks[i],
           .next_clock = i + 1 < clocks.size() ? clocks[i + 1] : 0});
    }
  }
  return returned;
}

bool ConsistencyController::HasToMakeOthers(const ShardCall& call) const {
  if (call.rank != 0 || lost_leases_.empty()) return false;
  return !ReturnedBelow(cuts_.Find(call.pull->cut_id)->clocks[0]).empty();
}

}  // namespace syncline::ps
