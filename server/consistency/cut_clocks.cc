#include "server/consistency/cut_clocks.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/cuts/cut_id.h"

namespace syncline::ps {
namespace {

// How far the clocks of a cut may be apart that holds a worker at `least`. The
// worker that has announced the cut reads at its own clock before it awaits the
// cut, because the pull comes with its last push before it. SYNC reads no clock
// that a worker has not closed; another mode with a bound reads so far ahead.
int64_t AllowedSpread(const RegimeSchedule& regimes, int64_t least) {
  const absl::Span<const TrainingRegime> all = regimes.regimes();
  for (size_t i = 0; i < all.size(); ++i) {
    const bool is_last = i + 1 == all.size();
    if (!is_last && all[i + 1].first_clock <= least) continue;
    const int64_t first = i == 0 ? least : std::max(all[i].first_clock, least);
    // Up to the last clock that this regime does not govern.
    const int64_t before = std::max<int64_t>(0, first - 1 - least);
    if (all[i].sync()) return before;
    const std::optional<int64_t> bound = all[i].bound();
    if (bound.has_value() &&
        (is_last || all[i + 1].first_clock > least + *bound)) {
      return std::max(before, *bound);
    }
  }
  return std::numeric_limits<int64_t>::max();
}

// The clocks of a cut, as far as they hold workers, from the smallest to the
// largest. A worker that is held at its cut must not keep another from reaching
// its own: that one would wait for the cut, and the cut for it. A worker that
// has finished waits for nothing, wherever its cut is. But its last clocks must
// be applied by then, or the state at the cut lacks them.
struct Spread {
  int64_t least = std::numeric_limits<int64_t>::max();
  int64_t most = 0;

  bool IsAllowed(const RegimeSchedule& regimes) const {
    return least >= most || most - least <= AllowedSpread(regimes, least);
  }
};

Spread SpreadOf(absl::Span<const PushLedger> workers,
                absl::Span<const int64_t> clocks) {
  Spread spread;
  for (uint32_t rank = 0; rank < workers.size(); ++rank) {
    if (workers[rank].finished()) {
      spread.most = std::max(spread.most, workers[rank].cut_from());
      continue;
    }
    spread.least = std::min(spread.least, clocks[rank]);
    spread.most = std::max(spread.most, clocks[rank]);
  }
  return spread;
}

// Raises the smallest clocks until they are as close to the largest one as the
// regimes allow.
void Narrow(const RegimeSchedule& regimes, absl::Span<const PushLedger> workers,
            std::vector<int64_t>* clocks) {
  // Each round is for a regime; there may be more of them than it is worth.
  constexpr int kRoundsMax = 64;
  Spread spread = SpreadOf(workers, *clocks);
  for (int round = 0; !spread.IsAllowed(regimes); ++round) {
    spread.least = round < kRoundsMax
                       ? spread.most - AllowedSpread(regimes, spread.least)
                       : spread.most;
  }
  for (uint32_t rank = 0; rank < workers.size(); ++rank) {
    if (workers[rank].finished()) continue;
    (*clocks)[rank] = std::max((*clocks)[rank], spread.least);
  }
}

}  // namespace

bool AllowsCut(const RegimeSchedule& regimes,
               absl::Span<const PushLedger> workers,
               absl::Span<const int64_t> clocks) {
  return SpreadOf(workers, clocks).IsAllowed(regimes);
}

std::vector<int64_t> SmallestCutClocks(const RegimeSchedule& regimes,
                                       absl::Span<const PushLedger> workers,
                                       absl::Span<const int64_t> clocks) {
  std::vector<int64_t> smallest;
  for (uint32_t rank = 0; rank < workers.size(); ++rank) {
    smallest.push_back(std::max(clocks[rank], workers[rank].cut_from()));
  }
  Narrow(regimes, workers, &smallest);
  return smallest;
}

absl::Status CheckCutForm(const ConsistencyOptions& options,
                          absl::Span<const int64_t> clocks) {
  if (clocks.size() != options.workers.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        options.label, ": a cut of ", clocks.size(), " clocks, the job has ",
        options.workers.size(), " workers"));
  }
  for (uint32_t rank = 0; rank < clocks.size(); ++rank) {
    if (clocks[rank] >= 0 && clocks[rank] <= kCutClockMax) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        options.label, ": a cut at clock ", clocks[rank], " of ",
        options.workers[rank].name, ", must be from 0 to ", kCutClockMax));
  }
  return absl::OkStatus();
}

absl::Status CheckCutClocks(const ConsistencyOptions& options,
                            absl::Span<const PushLedger> workers,
                            absl::Span<const int64_t> clocks) {
  SYNCLINE_RETURN_IF_ERROR(CheckCutForm(options, clocks));
  const std::vector<int64_t> smallest =
      SmallestCutClocks(options.regimes, workers, clocks);
  if (absl::MakeConstSpan(smallest) == clocks) return absl::OkStatus();
  const Spread spread = SpreadOf(workers, clocks);
  const std::string why =
      spread.IsAllowed(options.regimes)
          ? "a worker is past the cut"
          : absl::StrCat("the clocks of a cut are ", spread.most - spread.least,
                         " apart; the consistency mode allows ",
                         AllowedSpread(options.regimes, spread.least));
  return absl::OutOfRangeError(absl::StrCat(
      options.label, ": ", why, "; the smallest possible one is at clocks ",
      absl::StrJoin(smallest, ",")));
}

}  // namespace syncline::ps
