#include "server/tables/changed_keys.h"

#include <algorithm>
#include <utility>

#include "server/tables/cold_store.h"

namespace syncline::ps {

void ChangedKeys::Add(int64_t key) {
  open_.keys.insert(key);
  if (open_.keys.size() > limit_) open_.SetAll();
}

ChangedKeys::Changes ChangedKeys::Close(uint64_t base_cut, uint64_t cut,
                                        size_t limit) {
  // The changes up to a committed cut are in its file.
  if (base_cut != 0 && base_cut == closed_cut_) closed_ = {};
  if (base_cut == 0 || open_.all || closed_.all) {
    closed_.SetAll();
  } else {
    if (closed_.keys.size() < open_.keys.size()) std::swap(closed_, open_);
    closed_.keys.insert(open_.keys.begin(), open_.keys.end());
    if (closed_.keys.size() > limit) closed_.SetAll();
  }
  open_ = {};
  closed_cut_ = cut;
  limit_ = limit;
  Changes changes{.all = closed_.all,
                  .keys = {closed_.keys.begin(), closed_.keys.end()}};
  std::sort(changes.keys.begin(), changes.keys.end(), [](int64_t a, int64_t b) {
    return ColdPosition(a) < ColdPosition(b);
  });
  return changes;
}

}  // namespace syncline::ps
