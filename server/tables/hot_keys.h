#ifndef SYNCLINE_SERVER_TABLES_HOT_KEYS_H_
#define SYNCLINE_SERVER_TABLES_HOT_KEYS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "server/tables/space_saving.h"

namespace syncline::ps {

struct HotKey {
  int64_t key = 0;
  uint64_t pushes = 0;
  // Of these, without effect: never fewer, at most refused_error more.
  uint64_t refused = 0;
  uint64_t refused_error = 0;
};

// The keys with the most pushes, at most kKept. A row counts its own pushes,
// and takes the count along to disk and back: of these the largest that were
// offered are kept, and most offers end with one comparison. A key that has no
// row, because it was refused one, is counted by a sketch, so that any number
// of such keys takes no more memory. (A sketch of all keys would have to be
// larger than a batch: in a push each key is once, the hottest as any other.) A
// key that lost its row stays until others overtake it. Thread-compatible.
class HotKeys {
 public:
  static constexpr size_t kKept = 16;
  // A key is missed, or overrated, by at most 1 / kRefusedCounters of what was
  // refused. 200 KiB, from the first on.
  static constexpr size_t kRefusedCounters = 4096;

  void Offer(int64_t key, float pushes) {
    if (pushes > least_) Keep(key, pushes);
  }
  void CountRefused(int64_t key) { refused_.Count(key); }

  // The state; Offer takes over entries, in their order.
  struct Entry {
    int64_t key = 0;
    float pushes = 0;
  };
  absl::Span<const Entry> entries() const { return entries_; }
  const SpaceSaving& refused() const { return refused_; }
  // SpaceSaving::Merge of the keys without a row.
  void MergeRefused(absl::Span<const SpaceSaving::Counter> counters,
                    uint64_t uncounted_max) {
    refused_.Merge(counters, uncounted_max);
  }

  // Most pushes first.
  std::vector<HotKey> Sorted() const;
  // The hottest of both lists.
  static std::vector<HotKey> Merge(std::vector<HotKey> a,
                                   const std::vector<HotKey>& b);

 private:
  void Keep(int64_t key, float pushes);

  float least_ = 0;  // of those kept, once there are kKept
  std::vector<Entry> entries_;
  SpaceSaving refused_{kRefusedCounters};
};

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_TABLES_HOT_KEYS_H_
