// ConsistencyController's state at a cut: what it exports, and how another one
// goes on from there.

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "common/base/status_macros.h"
#include "common/cuts/cut_id.h"
#include "common/regime/regime_schedule.h"
#include "server/consistency/consistency_controller.h"

namespace syncline::ps {
namespace {

// The clock that all workers of the state have come to: the smallest one of
// those that have not finished; if all have, the largest one.
int64_t ClockOf(const ControllerState& state) {
  int64_t least = RegimeSchedule::kNever;
  int64_t most = 0;
  for (const ControllerState::Worker& worker : state.workers) {
    if (!worker.finished) least = std::min(least, worker.closed);
    most = std::max(most, worker.closed);
  }
  return least == RegimeSchedule::kNever ? most : least;
}

// OK if the controllers of a job with these regimes can have this state at a
// cut.
absl::Status CheckState(const ConsistencyOptions& options,
                        const ControllerState& state) {
  if (state.workers.size() != options.workers.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.label, ": the state is of ", state.workers.size(),
                     " workers, the job has ", options.workers.size()));
  }
  for (uint32_t rank = 0; rank < state.workers.size(); ++rank) {
    const ControllerState::Worker& worker = state.workers[rank];
    if (worker.closed >= 0 && worker.clocks_behind >= 0 &&
        worker.clocks_behind <= worker.closed) {
      continue;
    }
    return absl::InvalidArgumentError(absl::StrCat(
        options.label, ": the state says that ", options.workers[rank].name,
        " has closed ", worker.closed, " clocks, the last ",
        worker.clocks_behind, " of which were applied without it"));
  }
  // No worker goes on where SYNC holds another, or is to begin.
  const int64_t clock = ClockOf(state);
  const int64_t end = options.regimes.At(clock).sync()
                          ? clock
                          : options.regimes.NextSyncChange(clock);
  for (uint32_t rank = 0; rank < state.workers.size(); ++rank) {
    const ControllerState::Worker& worker = state.workers[rank];
    if (worker.finished || worker.closed <= end) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        options.label, ": the state says that ", options.workers[rank].name,
        " has closed ", worker.closed, " clocks, and other workers ", clock,
        "; in SYNC a cut is at one clock"));
  }
  return absl::OkStatus();
}

absl::Status CheckCuts(const ConsistencyOptions& options,
                       const ControllerState& state) {
  for (const ControllerState::Cut& cut : state.cuts) {
    bool possible = cut.id != 0 && cut.hold >= absl::ZeroDuration() &&
                    cut.clocks.size() == state.workers.size();
    for (size_t rank = 0; possible && rank < cut.clocks.size(); ++rank) {
      // A worker is held at a cut that it has come to.
      const ControllerState::Worker& worker = state.workers[rank];
      const int64_t least = worker.finished ? 0 : worker.closed;
      possible = cut.clocks[rank] >= least && cut.clocks[rank] <= kCutClockMax;
    }
    if (possible) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        options.label, ": the state has cut ", cut.id, " at clocks ",
        absl::StrJoin(cut.clocks, ","), " of ", state.workers.size(),
        " workers, held for ", absl::FormatDuration(cut.hold),
        ": nobody can have announced it"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ConsistencyController::CheckAnnounced(uint64_t cut_id) const {
  if (!closed_.ok()) return closed_;
  if (cuts_.Find(cut_id) != nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(options_.label, ": ", cuts_.Absence(cut_id)));
}

absl::Status ConsistencyController::CheckHeldCut(uint64_t cut_id) const {
  if (!closed_.ok()) return closed_;
  const CutSchedule::Cut* const cut = cuts_.Find(cut_id);
  if (cut != nullptr && cut->passed) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      options_.label, ": the state at a cut: ",
      cut == nullptr ? cuts_.Absence(cut_id)
                     : absl::StrCat("cut ", cut_id, " is not passed yet")));
}

absl::StatusOr<ControllerState> ConsistencyController::Export(
    uint64_t cut_id) const {
  SYNCLINE_RETURN_IF_ERROR(CheckHeldCut(cut_id));
  ControllerState state;
  for (uint32_t rank = 0; rank < workers_.size(); ++rank) {
    // Clocks that are leased and not made are the next attempt's.
    const bool leased = options_.leases;
    const int64_t cut = cuts_.Find(cut_id)->clocks[rank];
    // Another worker takes the place of one that was lost.
    const PushLedger& worker =
        FindLost(rank) == nullptr ? workers_[rank] : workers_[0];
    const bool leaves_behind =
        LeavesBehind() && !options_.quorum->loses_workers;
    state.workers.push_back(
        {.closed = leased ? cut : worker.closed(),
         .finished = !leased && worker.finished(),
         .left_out_pushes = left_out_pushes(rank),
         .clocks_behind =
             leaves_behind ? worker.closed() - behind_[rank].applied : 0});
  }
  state.skipped_clocks = skipped_clocks();
  state.skipped_through = sync_.SkippedThrough(sync_.clock());
  state.duplicate_blocks = duplicate_blocks_;
  state.abandoned_cuts = abandoned_cuts_;
  cuts_.Export(cut_id, &state);
  return state;
}

absl::Status ConsistencyController::CheckFresh() const {
  if (!closed_.ok()) return closed_;
  if (moved_at_ == absl::InfinitePast() && !had_init_) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      options_.label, ": a state must come before the first call"));
}

void ConsistencyController::GoOnTo(int64_t total_clocks) {
  if (options_.leases) return BeginLeases(total_clocks);
  bool go_on = false;
  for (PushLedger& worker : workers_) {
    if (!worker.finished() || worker.closed() >= total_clocks) continue;
    worker.Import(worker.closed(), /*finished=*/false);
    go_on = true;
  }
  if (go_on && in_sync_) BeginSyncClock();  // which waits for them
}

absl::Status ConsistencyController::Import(const ControllerState& state,
                                           bool begins_attempt,
                                           absl::Time now) {
  SYNCLINE_RETURN_IF_ERROR(CheckFresh());
  SYNCLINE_RETURN_IF_ERROR(CheckState(options_, state));
  if (!begins_attempt) {
    SYNCLINE_RETURN_IF_ERROR(CheckCuts(options_, state));
    cuts_.Import(state);
  }
  std::vector<uint64_t> left_out;
  for (uint32_t rank = 0; rank < workers_.size(); ++rank) {
    const ControllerState::Worker& worker = state.workers[rank];
    workers_[rank].Import(worker.closed, worker.finished);
    left_out.push_back(worker.left_out_pushes);
    // Workers of another attempt have pushed nothing that they ask about.
    behind_[rank].applied =
        worker.closed - (begins_attempt ? 0 : worker.clocks_behind);
  }
  had_init_ = !begins_attempt;
  block_initialised_.assign(block_initialised_.size(), true);
  initialised_count_ = options_.dense_block_count();
  duplicate_blocks_ = state.duplicate_blocks;
  abandoned_cuts_ = state.abandoned_cuts;
  const int64_t clock = ClockOf(state);
  sync_.Import(clock, state.skipped_clocks, state.skipped_through,
               std::move(left_out));
  BeginStretch(clock);
  changed_ = true;  // cuts that were held are passed again
  moved_at_ = now;
  return absl::OkStatus();
}

}  // namespace syncline::ps
