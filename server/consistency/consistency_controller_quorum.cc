// ConsistencyController's clocks that end without some of the workers.

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/consistency/consistency_controller.h"

namespace syncline::ps {

std::optional<ConsistencyController::Closes> ConsistencyController::OpenCloses()
    const {
  if (!closed_.ok() || !in_sync_ || !sync_.AwaitsSet()) return std::nullopt;
  Closes closes = {.clock = sync_.clock(), .ranks = sync_.ClosedRanks()};
  if (closes.ranks.empty()) return std::nullopt;
  return closes;
}

absl::Status ConsistencyController::OnQuorum(
    int64_t clock, absl::Span<const uint32_t> ranks, absl::Time now,
    ShardActions* out, absl::Span<const uint32_t> removed) {
  if (!closed_.ok() || !in_sync_ || !sync_.AwaitsSet() ||
      clock != sync_.clock()) {
    return absl::OkStatus();
  }
  std::vector<bool> set(workers_.size(), false);
  for (const uint32_t rank : ranks) {
    if (rank >= workers_.size() || workers_[rank].closed() <= clock) {
      return absl::InternalError(absl::StrCat(
          options_.label, ": clock ", clock, " is to be applied with ",
          rank < workers_.size() ? options_.workers[rank].name
                                 : absl::StrCat("rank ", rank),
          ", which has not closed it here"));
    }
    set[rank] = true;
  }
  if (ranks.empty()) {
    return absl::InternalError(absl::StrCat(
        options_.label, ": clock ", clock, " is to be applied with no worker"));
  }
  // All workers have the same last clock.
  const bool is_last =
      std::any_of(ranks.begin(), ranks.end(),
                  [&](uint32_t rank) { return workers_[rank].finished(); });
  const bool ended = sync_.OnFixed(workers_, set, out);
  for (uint32_t rank = 0; rank < workers_.size(); ++rank) {
    if (set[rank]) {
      behind_[rank].applied = clock + 1;
    } else if (!options_.quorum->loses_workers) {
      LeaveBehind(rank, clock, is_last);
    } else if (workers_[rank].closed() == clock && FindLost(rank) == nullptr) {
      workers_[rank].Forgo(is_last);  // it is among `removed`
    }
  }
  for (const uint32_t rank : removed) {
    if (rank > 0 && rank < workers_.size() && FindLost(rank) == nullptr) {
      Lose(rank, clock + 1, out);
    }
  }
  if (ended) BeginSyncClock();
  changed_ = moved_ = true;
  Settle(now, out);
  return absl::OkStatus();
}

void ConsistencyController::LeaveBehind(uint32_t rank, int64_t clock,
                                        bool is_last) {
  PushLedger& worker = workers_[rank];
  // It may have closed the clock here, and not on another shard.
  if (worker.closed() > clock || worker.started()) {
    CountDropped(rank, clock, worker.new_samples());
  }
  if (worker.closed() == clock) worker.Forgo(is_last);
  ++behind_[rank].clocks;
}

void ConsistencyController::Lose(uint32_t rank, int64_t clock,
                                 ShardActions* out) {
  workers_[rank].Leave();
  auto lost = lost_ == nullptr ? std::vector<LostWorker>() : *lost_;
  lost.push_back({.rank = rank, .first_clock = clock});
  const absl::Status status = LostError(lost.back());
  lost_ = std::make_shared<const std::vector<LostWorker>>(std::move(lost));
  EndCallsOf(rank, status, out);
}

void ConsistencyController::EndCallsOf(uint32_t rank,
                                       const absl::Status& status,
                                       ShardActions* out) {
  const auto ends = [&](const ShardCall& call) {
    if (call.rank != rank) return false;
    ShardAction& action = out->emplace_back();
    action.kind = ShardAction::Kind::kFail;
    action.token = call.token;
    action.status = status;
    return true;
  };
  parked_pushes_.remove_if(ends);
  parked_pulls_.remove_if(
      [&](const ParkedPull& pull) { return ends(pull.call); });
}

const ConsistencyController::LostWorker* ConsistencyController::FindLost(
    uint32_t rank) const {
  if (lost_ == nullptr) return nullptr;
  for (const LostWorker& lost : *lost_) {
    if (lost.rank == rank) return &lost;
  }
  return nullptr;
}

absl::Status ConsistencyController::LostError(const LostWorker& lost) const {
  return absl::FailedPreconditionError(
      absl::StrCat(options_.label, ": ", options_.workers[lost.rank].name,
                   " was lost, and the others go on without it from clock ",
                   lost.first_clock));
}

bool ConsistencyController::IsDropped(uint32_t rank, int64_t clock) const {
  if (!LeavesBehind() || clock < behind_[rank].applied) return false;
  // Clocks that the worker has closed are decided on, but for the open clock.
  return !sync_.AwaitsSet() || clock < sync_.clock();
}

void ConsistencyController::CountDropped(uint32_t rank, int64_t clock,
                                         uint64_t samples) {
  Behind& behind = behind_[rank];
  if (behind.counted >= clock) return;
  behind.counted = clock;
  behind.samples += samples;
}

}  // namespace syncline::ps
