// ConsistencyController's clocks that end without some of the workers.

#include <algorithm>
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

absl::Status ConsistencyController::OnQuorum(int64_t clock,
                                             absl::Span<const uint32_t> ranks,
                                             absl::Time now,
                                             ShardActions* out) {
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
    } else {
      LeaveBehind(rank, clock, is_last);
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
    CountDropped(rank, clock, worker.sample_count());
  }
  if (worker.closed() == clock) worker.Forgo(is_last);
  ++behind_[rank].clocks;
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
