#ifndef SYNCLINE_WORKER_EMBEDDING_ROW_CACHE_H_
#define SYNCLINE_WORKER_EMBEDDING_ROW_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace syncline::worker {

// Rows of one embedding table that a worker has read and may read again without
// a pull, as long as they are recent enough. The worker applies its own later
// changes here too. A full cache evicts a row that was not found lately (the
// clock algorithm). Thread-compatible.
class RowCache {
 public:
  // Bytes that a cache takes at most.
  static uint64_t BytesFor(size_t rows_max, size_t dim);
  // `rows_max` rows of `dim` values, taken at once; each is good for `clocks`
  // clocks after the one it was read for.
  RowCache(size_t rows_max, size_t dim, int64_t clocks);

  // The row of `key` for a read at `clock` that wants all workers' pushes of
  // steps before `oldest_as_of` in it; null if there is none that may be read.
  // Borrowed until the next call that is not Find.
  const float* Find(int64_t key, int64_t clock,
                    int64_t oldest_as_of = std::numeric_limits<int64_t>::min());
  // A row that was pulled for `clock`, with all pushes of steps before `as_of`
  // in it. Replaces an older one.
  void Put(int64_t key, int64_t clock, const float* row,
           int64_t as_of = std::numeric_limits<int64_t>::max());
  // The kept row of `key`, whatever its age, for the worker's own change; null:
  // there is none. Borrowed likewise.
  float* Own(int64_t key);

  size_t size() const { return slot_of_.size(); }

 private:
  struct Slot {
    int64_t key = 0;
    int64_t clock = 0;
    int64_t as_of = 0;
    bool used = false;     // holds a row
    bool touched = false;  // found since the hand passed
  };
  // A slot without a row; takes one from a row if it must.
  uint32_t FreeSlot();

  const size_t dim_;
  const int64_t clocks_;
  std::vector<Slot> slots_;
  std::vector<float> values_;  // [slots, dim]
  absl::flat_hash_map<int64_t, uint32_t> slot_of_;
  size_t hand_ = 0;
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_EMBEDDING_ROW_CACHE_H_
