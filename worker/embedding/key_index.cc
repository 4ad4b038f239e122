#include "worker/embedding/key_index.h"

#include <algorithm>
#include <bit>

#include "common/base/random.h"

namespace syncline::worker {

KeyIndex::KeyIndex(size_t keys_max)
    : entries_(std::bit_ceil(std::max<size_t>(2 * keys_max, 2))) {}

void KeyIndex::Clear() {
  if (++round_ != 0) return;
  std::fill(entries_.begin(), entries_.end(), Entry());
  round_ = 1;
}

uint32_t KeyIndex::Insert(int64_t key, uint32_t next, bool* is_new) {
  Entry& entry = entries_[Probe(key)];
  *is_new = entry.round != round_;
  if (*is_new) entry = {.key = key, .number = next, .round = round_};
  return entry.number;
}

uint32_t KeyIndex::Find(int64_t key) const {
  const Entry& entry = entries_[Probe(key)];
  return entry.round == round_ ? entry.number : kAbsent;
}

size_t KeyIndex::Probe(int64_t key) const {
  const size_t mask = entries_.size() - 1;
  size_t at = Mix64(static_cast<uint64_t>(key)) & mask;
  while (entries_[at].round == round_ && entries_[at].key != key) {
    at = (at + 1) & mask;
  }
  return at;
}

}  // namespace syncline::worker
