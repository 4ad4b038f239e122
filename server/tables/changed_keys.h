#ifndef SYNCLINE_SERVER_TABLES_CHANGED_KEYS_H_
#define SYNCLINE_SERVER_TABLES_CHANGED_KEYS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_set.h"

namespace syncline::ps {

// The keys whose rows were written, moved or removed since a checkpoint's cut,
// for the next checkpoint. It has the keys since the last cut, and those of the
// cut before it until that one's checkpoint is known to be committed: one that
// fails loses nothing. Bounded: with more keys than it may keep, it says that
// all may have changed. Pure. Thread-compatible.
class ChangedKeys {
 public:
  // Changes nobody has asked for are not kept: until the first Close all may
  // have changed, and Note is one comparison.
  void Note(int64_t key) {
    if (!open_.all) Add(key);
  }

  struct Changes {
    bool all = false;
    std::vector<int64_t> keys;  // by ColdPosition; empty if `all`
  };
  // A cut: what changed since `base_cut`, the last one whose checkpoint is
  // committed, 0: none, then all. `base_cut` is what an earlier call named, or
  // the `cut` of the last call. At most `limit` keys are kept and given from
  // here on.
  Changes Close(uint64_t base_cut, uint64_t cut, size_t limit);

  size_t memory_bytes() const {
    return (open_.keys.capacity() + closed_.keys.capacity()) *
           (sizeof(int64_t) + 1);
  }

 private:
  struct Generation {
    bool all = false;
    absl::flat_hash_set<int64_t> keys;

    void SetAll() { *this = {.all = true, .keys = {}}; }
  };
  void Add(int64_t key);

  size_t limit_ = 0;
  Generation open_ = {.all = true, .keys = {}};  // since the last Close
  Generation closed_;                            // what the last Close gave
  uint64_t closed_cut_ = 0;
};

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_TABLES_CHANGED_KEYS_H_
