#include "server/tables/space_saving.h"

namespace syncline::ps {

void SpaceSaving::Count(int64_t key) {
  if (heap_.capacity() == 0) {
    heap_.reserve(counters_max_);
    place_of_.reserve(counters_max_ + 1);
  }
  const auto found = place_of_.find(key);
  if (found != place_of_.end()) {
    const size_t at = found->second;
    ++heap_[at].count;
    return SiftDown(at);
  }
  if (heap_.size() < counters_max_) {
    heap_.push_back({key, 1, 0});
    place_of_[key] = static_cast<uint32_t>(heap_.size() - 1);
    return SiftUp(heap_.size() - 1);
  }
  // The least counted key gives its counter away, with its count.
  const Counter least = heap_[0];
  place_of_.erase(least.key);
  Place(0, {key, least.count + 1, least.count});
  SiftDown(0);
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
