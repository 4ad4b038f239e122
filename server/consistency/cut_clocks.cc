#include "server/consistency/cut_clocks.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace syncline::ps {
namespace {

// How far the clocks of a cut may be apart that holds a worker at `least`. SYNC
// applies no clock from there on; another mode with a bound lets a worker read
// at the clocks below its cut.
int64_t AllowedSpread(const RegimeSchedule& regimes, int64_t least) {
  const absl::Span<const TrainingRegime> all = regimes.regimes();
  for (size_t i = 0; i < all.size(); ++i) {
    const bool is_last = i + 1 == all.size();
    if (!is_last && all[i + 1].first_clock <= least) continue;
    const int64_t first = i == 0 ? least : std::max(all[i].first_clock, least);
    if (all[i].sync()) return first - least;
    const std::optional<int64_t> bound = all[i].bound();
    if (bound.has_value() &&
        (is_last || all[i + 1].first_clock > least + *bound + 1)) {
      return std::max(first - least, *bound + 1);
    }
  }
  return std::numeric_limits<int64_t>::max();
}

// A worker that is held at its cut must not keep another from reaching its own:
// that one would wait for the cut, and the cut for it. A worker that has
// finished waits for nothing, wherever its cut is. But its last clocks must be
// applied by then, or the state at the cut lacks them.
absl::Status CheckSpread(const std::string& label,
                         const RegimeSchedule& regimes,
                         absl::Span<const PushLedger> workers,
                         absl::Span<const int64_t> clocks) {
  int64_t least = std::numeric_limits<int64_t>::max();
  int64_t most = 0;
  for (uint32_t rank = 0; rank < workers.size(); ++rank) {
    if (workers[rank].finished()) {
      most = std::max(most, workers[rank].closed());
      continue;
    }
    least = std::min(least, clocks[rank]);
    most = std::max(most, clocks[rank]);
  }
  if (least >= most) return absl::OkStatus();
  const int64_t allowed = AllowedSpread(regimes, least);
  if (most - least <= allowed) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(label, ": the clocks of a cut are ", most - least,
                   " apart; the consistency mode allows ", allowed));
}

}  // namespace

bool AllowsCut(const RegimeSchedule& regimes,
               absl::Span<const PushLedger> workers,
               absl::Span<const int64_t> clocks) {
  return CheckSpread(/*label=*/"", regimes, workers, clocks).ok();
}

std::vector<int64_t> SmallestCutClocks(absl::Span<const PushLedger> workers) {
  std::vector<int64_t> smallest;
  for (const PushLedger& worker : workers) {
    smallest.push_back(worker.closed() + (worker.started() ? 1 : 0));
  }
  return smallest;
}

absl::Status CheckCutClocks(const ConsistencyOptions& options,
                            absl::Span<const PushLedger> workers,
                            absl::Span<const int64_t> clocks) {
  if (clocks.size() != workers.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.label, ": a cut of ", clocks.size(),
                     " clocks, the job has ", workers.size(), " workers"));
  }
  const std::vector<int64_t> smallest = SmallestCutClocks(workers);
  bool too_late = false;
  for (uint32_t rank = 0; rank < workers.size(); ++rank) {
    too_late |= clocks[rank] < smallest[rank];
  }
  if (!too_late) {
    return CheckSpread(options.label, options.regimes, workers, clocks);
  }
  return absl::OutOfRangeError(
      absl::StrCat(options.label,
                   ": a worker is past the cut; the smallest "
                   "possible one is at clocks ",
                   absl::StrJoin(smallest, ",")));
}

}  // namespace syncline::ps
