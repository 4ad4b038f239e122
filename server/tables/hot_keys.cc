#include "server/tables/hot_keys.h"

#include <algorithm>
#include <utility>

namespace syncline::ps {

void HotKeys::Keep(int64_t key, float pushes) {
  const auto fewer = [](const Entry& a, const Entry& b) {
    return a.pushes < b.pushes;
  };
  auto mine = std::find_if(entries_.begin(), entries_.end(),
                           [&](const Entry& e) { return e.key == key; });
  if (mine != entries_.end()) {
    mine->pushes = pushes;
  } else if (entries_.size() < kKept) {
    entries_.push_back({key, pushes});
  } else {
    *std::min_element(entries_.begin(), entries_.end(), fewer) = {key, pushes};
  }
  if (entries_.size() < kKept) return;
  least_ = std::min_element(entries_.begin(), entries_.end(), fewer)->pushes;
}

std::vector<HotKey> HotKeys::Sorted() const {
  std::vector<HotKey> keys;
  for (const Entry& entry : entries_) {
    keys.push_back({entry.key, static_cast<uint64_t>(entry.pushes)});
  }
  const size_t with_rows = keys.size();
  for (const SpaceSaving::Counter& counter : refused_.counters()) {
    const auto same =
        std::find_if(keys.begin(), keys.begin() + with_rows,
                     [&](const HotKey& k) { return k.key == counter.key; });
    const bool known = same != keys.begin() + with_rows;
    HotKey& key = known ? *same : keys.emplace_back();
    key.key = counter.key;
    key.pushes += counter.count;
    key.refused = counter.count;
    key.refused_error = counter.error;
  }
  return Merge(std::move(keys), {});
}

std::vector<HotKey> HotKeys::Merge(std::vector<HotKey> a,
                                   const std::vector<HotKey>& b) {
  a.insert(a.end(), b.begin(), b.end());
  std::sort(a.begin(), a.end(), [](const HotKey& x, const HotKey& y) {
    return x.pushes != y.pushes ? x.pushes > y.pushes : x.key < y.key;
  });
  if (a.size() > kKept) a.resize(kKept);
  return a;
}

}  // namespace syncline::ps
