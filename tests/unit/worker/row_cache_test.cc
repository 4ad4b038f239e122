// Goal: no row is ever read that is older than the bound, or from before the
// worker's own change; and no more rows are kept than was said.
// Method: random reads, pulls and changes over clocks that go on, against a
// record of when each row was pulled and changed.

#include "worker/row_cache.h"

#include <map>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

constexpr size_t kDim = 2;

struct Pulled {
  int64_t clock = 0;
  float value = 0;
  bool changed = false;  // by the worker, since
};

TEST(RowCacheTest, NoRowIsOlderThanTheBoundOrThanOnesOwnChange) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed=", seed));
    Random random(seed);
    const int64_t bound = static_cast<int64_t>(random.Below(4));
    const size_t rows_max = 1 + random.Below(12);
    RowCache cache(rows_max, kDim, bound);
    std::map<int64_t, Pulled> record;
    int64_t clock = 0;
    int hits = 0;
    for (int i = 0; i < 2000; ++i) {
      const int64_t key = static_cast<int64_t>(random.Below(20)) - 10;
      switch (random.Below(8)) {
        case 0:
          ++clock;
          break;
        case 1:
          cache.Drop(key);
          record[key].changed = true;
          break;
        case 2:
        case 3: {
          const float row[kDim] = {static_cast<float>(i),
                                   static_cast<float>(-i)};
          cache.Put(key, clock, row);
          record[key] = {clock, row[0], false};
          break;
        }
        default: {
          const float* const row = cache.Find(key, clock);
          if (row == nullptr) break;
          ++hits;
          ASSERT_TRUE(record.contains(key));
          ASSERT_FALSE(record[key].changed);
          ASSERT_LE(clock - record[key].clock, bound);
          ASSERT_EQ(row[0], record[key].value) << "the latest that was pulled";
          ASSERT_EQ(row[1], -record[key].value);
        }
      }
      ASSERT_LE(cache.size(), rows_max);
    }
    EXPECT_GT(hits, 0);
  }
}

TEST(RowCacheTest, RowsThatAreFoundStay) {
  RowCache cache(3, 1, 10);
  for (int64_t key = 0; key < 3; ++key) {
    const float row = static_cast<float>(key);
    cache.Put(key, 0, &row);
  }
  for (int64_t key = 10; key < 20; ++key) {
    ASSERT_NE(cache.Find(1, 0), nullptr);
    const float row = 0;
    cache.Put(key, 0, &row);
  }
  EXPECT_EQ(*cache.Find(1, 0), 1.0f);
  EXPECT_EQ(cache.size(), 3u);
  cache.Clear();
  EXPECT_EQ(cache.size(), 0u);
  EXPECT_EQ(cache.Find(1, 0), nullptr);
}

TEST(RowCacheTest, WithoutRoomNothingIsKept) {
  RowCache cache(0, 1, 10);
  const float row = 1;
  cache.Put(1, 0, &row);
  EXPECT_EQ(cache.Find(1, 0), nullptr);
}

}  // namespace
}  // namespace syncline
