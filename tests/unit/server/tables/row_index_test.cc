// Goal: the index finds every row it was given and no other, at any capacity,
// among tombstones, with hashes that collide.
// Method: seeded inserts and removals against a map.

#include "server/tables/row_index.h"

#include <map>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "gtest/gtest.h"

namespace syncline::ps {
namespace {

void ExpectLikeAMap(uint32_t capacity, uint64_t hashes, uint64_t seed) {
  SCOPED_TRACE(absl::StrCat("capacity=", capacity, " hashes=", hashes));
  Random random(seed);
  RowIndex index(capacity);
  std::map<uint32_t, uint64_t> rows;  // row -> key; a key's hash is shared
  const auto hash_of = [&](uint64_t key) { return Mix64(key % hashes); };
  for (int i = 0; i < 20000; ++i) {
    const uint32_t row = static_cast<uint32_t>(random.Below(capacity / 2));
    if (rows.count(row) != 0) {
      index.Remove(hash_of(rows[row]), row);
      rows.erase(row);
    } else {
      if (index.used() + 2 >= capacity) {
        index.Reset(capacity);
        for (const auto& [r, key] : rows) index.Insert(hash_of(key), r);
      }
      const uint64_t key = random.Next();
      index.Insert(hash_of(key), row);
      rows[row] = key;
    }
    const uint32_t any = static_cast<uint32_t>(random.Below(capacity / 2));
    if (rows.count(any) != 0) {
      const uint64_t hash = hash_of(rows[any]);
      ASSERT_EQ(index.Find(hash, [&](uint32_t r) { return r == any; }), any);
      ASSERT_NE(index.Guess(hash), RowIndex::kNone);
    }
    // A row that is not there is never offered.
    ASSERT_EQ(index.Find(hash_of(random.Next()),
                         [&](uint32_t r) { return rows.count(r) == 0; }),
              RowIndex::kNone);
  }
}

TEST(RowIndexTest, IsAMapAtAnyCapacity) {
  for (const uint32_t capacity : {8u, 9u, 31u, 100u, 1023u, 1024u, 5000u}) {
    ExpectLikeAMap(capacity, 1ull << 40, capacity);
  }
}

TEST(RowIndexTest, IsAMapWhenHashesCollide) {
  ExpectLikeAMap(64, 1, 1);
  ExpectLikeAMap(1024, 20, 2);
}

TEST(RowIndexTest, TagsKeepProbesFromRows) {
  constexpr uint32_t kRows = 4096;
  RowIndex index(kRows * 4 / 3);
  for (uint32_t row = 0; row < kRows; ++row) index.Insert(Mix64(row), row);
  int looked_at = 0;
  for (uint64_t key = kRows; key < 10 * kRows; ++key) {
    index.Find(Mix64(key), [&](uint32_t) {
      ++looked_at;
      return false;
    });
  }
  EXPECT_LT(looked_at, 10);  // of 36,864 absent keys; 19 bits of tag
}

TEST(RowIndexTest, ResetEmpties) {
  RowIndex index(16);
  index.Insert(Mix64(1), 3);
  EXPECT_EQ(index.used(), 1u);
  index.Reset(20);
  EXPECT_EQ(index.used(), 0u);
  EXPECT_EQ(index.capacity(), 20u);
  EXPECT_EQ(index.Guess(Mix64(1)), RowIndex::kNone);
}

}  // namespace
}  // namespace syncline::ps
