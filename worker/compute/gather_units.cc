#include "worker/compute/gather_units.h"

#include <algorithm>

#include "absl/algorithm/container.h"

namespace syncline::worker {
namespace {

// Those of `reads` that the unit lacks.
std::vector<int> Missing(const GatherUnit& unit, absl::Span<const int> reads) {
  std::vector<int> missing;
  for (const int parameter : reads) {
    if (!absl::c_linear_search(unit.parameters, parameter)) {
      missing.push_back(parameter);
    }
  }
  return missing;
}

int64_t BytesOfAll(absl::Span<const int> parameters,
                   absl::Span<const int64_t> bytes) {
  int64_t sum = 0;
  for (const int parameter : parameters) sum += bytes[parameter];
  return sum;
}

// Neighbours lie at the two ends of the pool, and are the only ones that are
// there at the same time.
void PlaceUnits(absl::Span<const int64_t> bytes, GatherUnits* all) {
  int64_t before = 0;
  for (const GatherUnit& unit : all->units) {
    all->pool_bytes = std::max(all->pool_bytes, before + unit.bytes);
    before = unit.bytes;
  }
  bool at_end = false;
  for (GatherUnit& unit : all->units) {
    int64_t at = at_end ? all->pool_bytes - unit.bytes : 0;
    for (const int parameter : unit.parameters) {
      unit.offsets.push_back(at);
      at += bytes[parameter];
    }
    at_end = !at_end;
  }
}

}  // namespace

const GatherUnit* GatherUnits::At(int step) const {
  const auto behind = std::upper_bound(
      units.begin(), units.end(), step,
      [](int s, const GatherUnit& unit) { return s < unit.first_step; });
  if (behind == units.begin()) return nullptr;
  const GatherUnit& unit = *(behind - 1);
  return step <= unit.last_step ? &unit : nullptr;
}

int64_t GatherUnits::OffsetAt(int step, int parameter) const {
  const GatherUnit* const unit = At(step);
  if (unit == nullptr) return -1;
  const auto found = absl::c_find(unit->parameters, parameter);
  if (found == unit->parameters.end()) return -1;
  return unit->offsets[static_cast<size_t>(found - unit->parameters.begin())];
}

GatherUnits CutGatherUnits(absl::Span<const std::vector<int>> reads,
                           absl::Span<const int64_t> bytes,
                           int64_t unit_bytes) {
  GatherUnits all;
  for (size_t s = 0; s < reads.size(); ++s) {
    if (reads[s].empty()) continue;
    const int step = static_cast<int>(s);
    if (!all.units.empty()) {
      GatherUnit& last = all.units.back();
      const std::vector<int> missing = Missing(last, reads[s]);
      const int64_t more = BytesOfAll(missing, bytes);
      if (missing.empty() || last.bytes + more <= unit_bytes) {
        last.parameters.insert(last.parameters.end(), missing.begin(),
                               missing.end());
        last.bytes += more;
        last.last_step = step;
        continue;
      }
    }
    all.units.push_back({.first_step = step,
                         .last_step = step,
                         .parameters = reads[s],
                         .bytes = BytesOfAll(reads[s], bytes)});
  }
  PlaceUnits(bytes, &all);
  return all;
}

}  // namespace syncline::worker
