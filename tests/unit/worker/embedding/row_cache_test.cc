// Goal: no row is ever read that is older than the bounds, or without the
// worker's own changes; and no more rows are kept than was said.
// Method: random reads, pulls and changes over clocks that go on, against a
// record of when each row was pulled and changed.

#include "worker/embedding/row_cache.h"

#include <map>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "gtest/gtest.h"

namespace syncline::worker {
namespace {

constexpr size_t kDim = 2;

struct Pulled {
  int64_t clock = 0;
  float value = 0;
  int64_t as_of = 0;
};

TEST(RowCacheTest, NoRowIsOlderThanItsBoundsOrWithoutOnesOwnChanges) {
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
          if (float* const row = cache.Own(key); row != nullptr) {
            row[0] += 1;
            row[1] -= 1;
            record[key].value += 1;
          }
          break;
        case 2:
        case 3: {
          const float row[kDim] = {static_cast<float>(i),
                                   static_cast<float>(-i)};
          const int64_t as_of = clock - static_cast<int64_t>(random.Below(3));
          cache.Put(key, clock, row, as_of);
          record[key] = {clock, row[0], as_of};
          break;
        }
        default: {
          const float* const row = cache.Find(key, clock, clock - 3);
          if (row == nullptr) break;
          ++hits;
          ASSERT_TRUE(record.contains(key));
          ASSERT_GE(record[key].as_of, clock - 3);
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
}

TEST(RowCacheTest, WithoutRoomNothingIsKept) {
  RowCache cache(0, 1, 10);
  const float row = 1;
  cache.Put(1, 0, &row);
  EXPECT_EQ(cache.Find(1, 0), nullptr);
}

}  // namespace
}  // namespace syncline::worker
