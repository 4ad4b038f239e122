#ifndef SYNCLINE_WORKER_EMBEDDING_KEY_INDEX_H_
#define SYNCLINE_WORKER_EMBEDDING_KEY_INDEX_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace syncline::worker {

// Numbers the distinct keys of a batch 0, 1, 2 ... as they appear. Open
// addressing in memory that is taken once; emptying it costs nothing, because
// entries of earlier batches are told by their round. Thread-compatible.
class KeyIndex {
 public:
  static constexpr uint32_t kAbsent = ~uint32_t{0};

  explicit KeyIndex(size_t keys_max);

  void Clear();
  // The number of `key`, which is `next` if it is new: `*is_new` says which.
  // REQUIRES: at most keys_max distinct keys since Clear.
  uint32_t Insert(int64_t key, uint32_t next, bool* is_new);
  // kAbsent if there is none.
  uint32_t Find(int64_t key) const;

 private:
  struct Entry {
    int64_t key = 0;
    uint32_t number = 0;
    uint32_t round = 0;
  };
  // Where `key` is, or would be put.
  size_t Probe(int64_t key) const;

  std::vector<Entry> entries_;  // a power of two, at most half of them in use
  uint32_t round_ = 1;
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_EMBEDDING_KEY_INDEX_H_
