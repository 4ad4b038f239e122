#include "common/checkpoint/retention.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "common/cuts/cut_id.h"

namespace syncline {

namespace {

// Later attempts have made clocks again that `one` has.
bool WasLeft(const KeptCheckpoint& one, absl::Span<const KeptCheckpoint> all,
             const CheckpointName& committed, int64_t start_clock) {
  const uint64_t attempt = AttemptOfCut(one.name.cut_id);
  if (attempt < AttemptOfCut(committed.cut_id) &&
      one.name.clock > start_clock) {
    return true;
  }
  return std::any_of(all.begin(), all.end(), [&](const KeptCheckpoint& other) {
    return other.whole && AttemptOfCut(other.name.cut_id) > attempt &&
           other.name.clock <= one.name.clock;
  });
}

}  // namespace

std::vector<size_t> ChooseDeleted(absl::Span<const KeptCheckpoint> all,
                                  const CheckpointName& committed,
                                  int64_t start_clock, uint32_t keep_last,
                                  uint64_t keep_every) {
  std::vector<size_t> order(all.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return all[a].name.cut_id < all[b].name.cut_id;
  });
  std::vector<bool> keep(all.size());
  std::vector<bool> left(all.size());
  for (size_t i = 0; i < all.size(); ++i) {
    left[i] = WasLeft(all[i], all, committed, start_clock);
  }
  // By clock, since a job that went back makes those of some clocks again.
  if (keep_every > 0) {
    std::vector<size_t> by_clock;
    for (const size_t i : order) {
      if (all[i].whole && !left[i]) by_clock.push_back(i);
    }
    std::stable_sort(by_clock.begin(), by_clock.end(), [&](size_t a, size_t b) {
      return all[a].name.clock < all[b].name.clock;
    });
    std::set<uint64_t> had;  // multiples that have one
    for (const size_t i : by_clock) {
      const uint64_t multiple =
          static_cast<uint64_t>(all[i].name.clock) / keep_every;
      if (multiple > 0 && had.insert(multiple).second) keep[i] = true;
    }
  }
  uint32_t places = keep_last - 1;
  uint32_t places_of_all = places;
  for (auto i = order.rbegin(); i != order.rend(); ++i) {
    const KeptCheckpoint& one = all[*i];
    if (one.name == committed || one.marked) {
      keep[*i] = true;
    } else if (one.name.cut_id > committed.cut_id) {
      // A later attempt's, whole or under way: whoever commits an earlier one
      // after it belongs to members that were lost.
      keep[*i] = true;
    } else if (one.whole) {
      uint32_t& free = left[*i] ? places_of_all : places;
      if (free > 0) keep[*i] = true;
      if (places_of_all > 0) --places_of_all;
      if (!left[*i] && places > 0) --places;
    }
  }
  std::vector<size_t> deleted;
  for (const size_t i : order) {
    if (!keep[i]) deleted.push_back(i);
  }
  return deleted;
}

}  // namespace syncline
