// ConsistencyController's regimes: those that come, and the borders of SYNC.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/regime/regime_schedule.h"
#include "server/consistency/consistency_controller.h"
#include "server/consistency/cut_clocks.h"

namespace syncline::ps {

absl::Status ConsistencyController::OnRegime(const TrainingRegime& regime,
                                             absl::Time now,
                                             ShardActions* out) {
  SYNCLINE_RETURN_IF_ERROR(closed_);
  int64_t begun = 0;
  for (const PushLedger& worker : workers_) {
    begun = std::max(begun, worker.closed() + (worker.started() ? 1 : 0));
  }
  RegimeSchedule regimes = options_.regimes;
  if (absl::Status added = regimes.Add(regime, begun); !added.ok()) {
    return Annotate(added, options_.label);
  }
  // A cut was announced under the regimes before, and must be reached.
  for (const CutSchedule::Cut& cut : cuts_.cuts()) {
    if (cut.passed || AllowsCut(regimes, workers_, cut.clocks)) continue;
    return absl::OutOfRangeError(
        absl::StrCat(options_.label, ": a regime from clock ",
                     regime.first_clock, " would keep workers from ",
                     cut.Name(), "; the smallest possible one is ",
                     *std::max_element(cut.clocks.begin(), cut.clocks.end())));
  }
  options_.regimes = std::move(regimes);
  // What was ready for a parked pull may be too old for its clock's new bound.
  for (ParkedPull& pull : parked_pulls_) {
    if (pull.call.pull->clock >= regime.first_clock) pull.ready_blocks = 0;
  }
  stretch_end_ = options_.regimes.NextSyncChange(stretch_begin_);
  changed_ = true;
  Settle(now, out);
  return absl::OkStatus();
}

void ConsistencyController::BeginStretch(int64_t clock) {
  stretch_begin_ = clock;
  stretch_end_ = options_.regimes.NextSyncChange(clock);
  in_sync_ = options_.regimes.At(clock).sync();
  if (!in_sync_) return;
  sync_.StartAt(clock);
  BeginSyncClock();
}

void ConsistencyController::PassStretches() {
  while (stretch_end_ != RegimeSchedule::kNever) {
    bool has_active = false;
    for (uint32_t rank = 0; rank < workers_.size(); ++rank) {
      if (!active(rank)) continue;
      has_active = true;
      if (workers_[rank].closed() < stretch_end_) return;
    }
    // Closed, but in SYNC perhaps not applied. Where no worker is active there
    // are no pushes to come.
    if (!has_active || (in_sync_ && sync_.clock() < stretch_end_)) return;
    BeginStretch(stretch_end_);
    changed_ = true;
  }
}

}  // namespace syncline::ps
