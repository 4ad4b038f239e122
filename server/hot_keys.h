#ifndef SYNCLINE_SERVER_HOT_KEYS_H_
#define SYNCLINE_SERVER_HOT_KEYS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace syncline {

struct HotKey {
  int64_t key = 0;
  uint64_t pushes = 0;
};

// The keys with the most pushes, at most kKept. Rows count their own pushes, so
// nothing needs to be estimated: this only keeps the largest counts it was
// offered, and most offers end with one comparison. A key that lost its row
// stays until others overtake it. Thread-compatible.
class HotKeys {
 public:
  static constexpr size_t kKept = 16;

  void Offer(int64_t key, float pushes) {
    if (pushes > least_) Keep(key, pushes);
  }
  // Most pushes first.
  std::vector<HotKey> Sorted() const;
  // The hottest of both lists.
  static std::vector<HotKey> Merge(std::vector<HotKey> a,
                                   const std::vector<HotKey>& b);

 private:
  struct Entry {
    int64_t key;
    float pushes;
  };
  void Keep(int64_t key, float pushes);

  float least_ = 0;  // of those kept, once there are kKept
  std::vector<Entry> entries_;
};

}  // namespace syncline

#endif  // SYNCLINE_SERVER_HOT_KEYS_H_
