#include "common/regime/regime_schedule.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace syncline {

absl::Status RegimeSchedule::Add(const TrainingRegime& regime, int64_t begun) {
  if (std::find(regimes_.begin(), regimes_.end(), regime) != regimes_.end()) {
    return absl::OkStatus();
  }
  const int64_t last = regimes_.back().first_clock;
  if (regime.first_clock <= last) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a regime from clock ", regime.first_clock,
        regime.first_clock == last
            ? ": another one begins there"
            : absl::StrCat(": a later one begins at clock ", last)));
  }
  if (regime.first_clock < begun) {
    return absl::OutOfRangeError(absl::StrCat(
        "a regime from clock ", regime.first_clock,
        ": that clock has begun; the smallest possible one is ", begun));
  }
  if (regimes_.size() >= kRegimesMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a regime from clock ", regime.first_clock, ": there are ",
                     kRegimesMax, " already"));
  }
  regimes_.push_back(regime);
  return absl::OkStatus();
}

int64_t RegimeSchedule::NextSyncChange(int64_t clock) const {
  const bool sync = At(clock).sync();
  for (const TrainingRegime& regime : regimes_) {
    if (regime.first_clock > clock && regime.sync() != sync) {
      return regime.first_clock;
    }
  }
  return kNever;
}

bool RegimeSchedule::AnySync() const {
  return std::any_of(regimes_.begin(), regimes_.end(),
                     [](const TrainingRegime& r) { return r.sync(); });
}

bool RegimeSchedule::AllSync() const {
  return std::all_of(regimes_.begin(), regimes_.end(),
                     [](const TrainingRegime& r) { return r.sync(); });
}

std::optional<int64_t> RegimeSchedule::CutSpread() const {
  std::optional<int64_t> least;
  for (const TrainingRegime& regime : regimes_) {
    if (!regime.bound().has_value()) continue;
    const int64_t spread = regime.sync() ? 0 : *regime.bound();
    least = std::min(least.value_or(spread), spread);
  }
  return least;
}

ElementType RegimeSchedule::WidestWireType() const {
  return std::max_element(regimes_.begin(), regimes_.end(),
                          [](const TrainingRegime& a, const TrainingRegime& b) {
                            return ElementBytes(a.wire_type) <
                                   ElementBytes(b.wire_type);
                          })
      ->wire_type;
}

}  // namespace syncline
