// ConsistencyController's regimes: those that come, and the borders of SYNC.

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
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
    begun = std::max(begun, worker.cut_from());
  }
  RegimeSchedule regimes = options_.regimes;
  if (absl::Status added = regimes.Add(regime, begun); !added.ok()) {
    return Annotate(added, options_.label);
  }
  // A cut was announced under the regimes before, and must be reached.
  for (const CutSchedule::Cut& cut : cuts_.cuts()) {
    if (cut.passed || AllowsCut(regimes, workers_, cut.clocks)) continue;
    return absl::OutOfRangeError(absl::StrCat(
        options_.label, ": a regime from clock ", regime.first_clock,
        " would keep workers from ", cut.Name(),
        "; the smallest possible one is ",
        1 + *std::max_element(cut.clocks.begin(), cut.clocks.end())));
  }
  options_.regimes = std::move(regimes);
  // Blocks that were ready for a parked pull may be too old for its new bound.
  for (ParkedPull& pull : parked_pulls_) {
    if (pull.call.pull->clock >= regime.first_clock) pull.ready_blocks = 0;
  }
  stretch_end_ = options_.regimes.NextSyncChange(stretch_begin_);
  changed_ = true;
  Settle(now, out);
  return absl::OkStatus();
}

std::vector<int64_t> ConsistencyController::SmallestFor(
    CutUse use, absl::Span<const int64_t> clocks) const {
  if (use != CutUse::kRegime) {
    return SmallestCutClocks(options_.regimes, workers_, clocks);
  }
  // A worker may have the values of its open clock already, and compute its
  // step by the regime that it knows: so not before the next one. If it has
  // begun to push its open clock, its pull of the next one may be answered, and
  // what it still has to push says nothing of regimes: so not before the one
  // behind that.
  int64_t smallest = 0;
  for (uint32_t rank = 0; rank < workers_.size(); ++rank) {
    const PushLedger& worker = workers_[rank];
    // The clocks behind the last one of a lost worker are others'.
    const bool is_over = worker.finished() && FindLost(rank) != nullptr;
    smallest = std::max({smallest, clocks[rank],
                         is_over ? worker.cut_from() : worker.readable() + 1});
  }
  return std::vector<int64_t>(clocks.size(), smallest);
}

absl::Status ConsistencyController::CheckRegimeCut(
    absl::Span<const int64_t> clocks,
    const std::optional<TrainingRegime>& regime) const {
  if (!regime.has_value() ||
      std::any_of(clocks.begin(), clocks.end(), [&](int64_t clock) {
        return clock != regime->first_clock;
      })) {
    return absl::InvalidArgumentError(absl::StrCat(
        options_.label, ": a cut at clocks ", absl::StrJoin(clocks, ","),
        regime.has_value()
            ? absl::StrCat(" for a regime from clock ", regime->first_clock)
            : " without a regime",
        ": the regime changes at one clock of all workers, its first"));
  }
  for (uint32_t rank = 0; rank < workers_.size(); ++rank) {
    if (!workers_[rank].finished() || FindLost(rank) != nullptr) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        options_.label, ": ", options_.workers[rank].name,
        " has made its last step, clock ", workers_[rank].closed() - 1,
        "; a regime changes while all workers train"));
  }
  RegimeSchedule regimes = options_.regimes;
  const TrainingRegime& last = regimes.regimes().back();
  if (regime->group_size != last.group_size) {
    return absl::InvalidArgumentError(absl::StrCat(
        options_.label, ": a regime from clock ", regime->first_clock,
        " with another group size: that does not change while a job runs"));
  }
  // How gradients travel, where that changes; null: it does not.
  const char* const change = regime->wire_type != last.wire_type ? "wire type"
                             : regime->compression != last.compression
                                 ? "compression"
                                 : nullptr;
  if (change != nullptr &&
      (regime->strategy != last.strategy || !last.has_ps())) {
    return absl::InvalidArgumentError(absl::StrCat(
        options_.label, ": a regime from clock ", regime->first_clock,
        " with another ", change,
        ": that changes while the job trains through the ps, and its strategy "
        "stays"));
  }
  if (regime->strategy != last.strategy &&
      (!regime->sync() || !last.sync() || options_.slot_count > 0 ||
       options_.evaluator.has_value() || lost_ != nullptr)) {
    return absl::InvalidArgumentError(absl::StrCat(
        options_.label, ": a regime from clock ", regime->first_clock,
        " with another strategy: that changes in SYNC alone, without tables, "
        "without an evaluator, and before a worker is lost"));
  }
  if (const absl::Status added = regimes.Add(*regime, /*begun=*/0);
      !added.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(options_.label, ": ", added.message()));
  }
  const std::vector<int64_t> smallest = SmallestFor(CutUse::kRegime, clocks);
  if (clocks != absl::MakeConstSpan(smallest)) {
    return absl::OutOfRangeError(absl::StrCat(
        options_.label, ": a regime from clock ", regime->first_clock,
        ": a worker is past it; the smallest possible one is ", smallest[0]));
  }
  for (const CutSchedule::Cut& cut : cuts_.cuts()) {
    if (cut.use == CutUse::kRouting || cut.use == CutUse::kRegime ||
        (!cut.passed && !AllowsCut(regimes, workers_, cut.clocks))) {
      return absl::FailedPreconditionError(absl::StrCat(
          options_.label, ": a regime from clock ", regime->first_clock,
          ": first ", cut.Name(), " has to be passed"));
    }
  }
  return absl::OkStatus();
}

absl::Status ConsistencyController::CheckBesideRegimeCut(
    absl::Span<const int64_t> clocks, CutUse use) const {
  const CutSchedule::Cut* const cut = cuts_.RegimeCut();
  if (cut == nullptr) return absl::OkStatus();
  const bool equal =
      std::all_of(clocks.begin(), clocks.end(),
                  [&](int64_t clock) { return clock == clocks[0]; });
  // It must be possible under either regime, and the state that moves has none
  // that is still to be decided on.
  if (equal && use != CutUse::kRouting) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      options_.label, ": ", cut->Name(), " is announced: the regime changes"));
}

absl::Status ConsistencyController::CommitRegime(uint64_t cut_id,
                                                 absl::Time now,
                                                 ShardActions* out) {
  const CutSchedule::Cut& cut = *cuts_.Find(cut_id);
  if (!cut.passed || !cut.regime.has_value()) {
    return absl::FailedPreconditionError(absl::StrCat(
        options_.label, ": ", cut.Name(), ": its regime cannot be in force: ",
        cut.passed ? "this shard has not been told it"
                   : "not all workers have come to it"));
  }
  const TrainingRegime regime = *cut.regime;
  return OnRegime(regime, now, out);
}

bool ConsistencyController::AwaitsRegime(uint32_t rank, int64_t clock) const {
  const CutSchedule::Cut* const cut = cuts_.RegimeCut();
  return cut != nullptr && options_.is_worker(rank) &&
         clock >= cut->clocks[rank];
}

uint32_t ConsistencyController::RegimesAt(uint32_t rank, int64_t clock) const {
  return static_cast<uint32_t>(options_.regimes.regimes().size()) +
         (AwaitsRegime(rank, clock) ? 1 : 0);
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
