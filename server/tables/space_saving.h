#ifndef SYNCLINE_SERVER_TABLES_SPACE_SAVING_H_
#define SYNCLINE_SERVER_TABLES_SPACE_SAVING_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"

namespace syncline::ps {

// Counts the most frequent of any number of keys with `counters` counters.
// After n keys, of which `key` was f:
//   counted: count - error <= f <= count, and error <= n / counters
//   not counted: f <= n / counters
// Memory is taken with the first key. A key costs a look-up and a step down the
// heap. Thread-compatible. Source: Metwally et al., ICDT 2005, "Space-Saving".
class SpaceSaving {
 public:
  struct Counter {
    int64_t key = 0;
    uint64_t count = 0;
    uint64_t error = 0;
  };
  // REQUIRES: counters > 0.
  explicit SpaceSaving(size_t counters) : counters_max_(counters) {}

  void Count(int64_t key);
  // In no order. Borrowed until the next Count.
  absl::Span<const Counter> counters() const { return heap_; }
  // A key without a counter was counted at most so often.
  uint64_t uncounted_max() const {
    if (heap_.size() < counters_max_) return uncounted_max_;
    return std::max(uncounted_max_, heap_[0].count);
  }
  // Adds what another sketch has counted, of other keys: its counters() and its
  // uncounted_max(). An empty sketch of the same size becomes the other one.
  void Merge(absl::Span<const Counter> counters, uint64_t uncounted_max);

 private:
  void Add(const Counter& counter);
  // Moves the counter at `at` below all that are smaller.
  void SiftDown(size_t at);
  void SiftUp(size_t at);
  void Place(size_t at, const Counter& counter) {
    heap_[at] = counter;
    place_of_[counter.key] = static_cast<uint32_t>(at);
  }

  void Reserve();

  const size_t counters_max_;
  uint64_t uncounted_max_ = 0;  // from Merge
  std::vector<Counter> heap_;   // the smallest count first
  absl::flat_hash_map<int64_t, uint32_t> place_of_;
};

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_TABLES_SPACE_SAVING_H_
