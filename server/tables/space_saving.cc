#include "server/tables/space_saving.h"

#include <algorithm>

namespace syncline::ps {

void SpaceSaving::Reserve() {
  if (heap_.capacity() > 0) return;
  heap_.reserve(counters_max_);
  place_of_.reserve(counters_max_ + 1);
}

void SpaceSaving::Count(int64_t key) {
  Reserve();
  const auto found = place_of_.find(key);
  if (found != place_of_.end()) {
    const size_t at = found->second;
    ++heap_[at].count;
    return SiftDown(at);
  }
  if (heap_.size() < counters_max_) {
    return Add({key, uncounted_max_ + 1, uncounted_max_});
  }
  // The least counted key gives its counter away, with what the new key may
  // have been counted.
  const uint64_t before = uncounted_max();
  place_of_.erase(heap_[0].key);
  Place(0, {key, before + 1, before});
  SiftDown(0);
}

void SpaceSaving::Add(const Counter& counter) {
  heap_.push_back(counter);
  place_of_[counter.key] = static_cast<uint32_t>(heap_.size() - 1);
  SiftUp(heap_.size() - 1);
}

void SpaceSaving::Merge(absl::Span<const Counter> counters,
                        uint64_t uncounted_max) {
  Reserve();
  uncounted_max_ = std::max(uncounted_max_, uncounted_max);
  for (const Counter& counter : counters) {
    if (place_of_.contains(counter.key)) continue;
    if (heap_.size() < counters_max_) {
      Add(counter);
    } else if (heap_[0].count < counter.count) {
      place_of_.erase(heap_[0].key);
      Place(0, counter);
      SiftDown(0);
    }
  }
}

void SpaceSaving::SiftDown(size_t at) {
  const Counter moved = heap_[at];
  const size_t begin = at;
  while (true) {
    size_t child = 2 * at + 1;
    if (child >= heap_.size()) break;
    if (child + 1 < heap_.size() &&
        heap_[child + 1].count < heap_[child].count) {
      ++child;
    }
    if (heap_[child].count >= moved.count) break;
    Place(at, heap_[child]);
    at = child;
  }
  if (at != begin) Place(at, moved);
}

void SpaceSaving::SiftUp(size_t at) {
  const Counter moved = heap_[at];
  const size_t begin = at;
  while (at > 0 && heap_[(at - 1) / 2].count > moved.count) {
    Place(at, heap_[(at - 1) / 2]);
    at = (at - 1) / 2;
  }
  if (at != begin) Place(at, moved);
}

}  // namespace syncline::ps
