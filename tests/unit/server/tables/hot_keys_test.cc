// Goal: of all keys that were offered, those with the largest counts are kept.
// Method: seeded counts against sorting all of them.

#include "server/tables/hot_keys.h"

#include <algorithm>
#include <map>
#include <vector>

#include "common/base/random.h"
#include "gtest/gtest.h"

namespace syncline::ps {
namespace {

TEST(HotKeysTest, KeepsTheLargestCounts) {
  Random random(3);
  HotKeys hot;
  std::map<int64_t, uint64_t> counts;
  for (int i = 0; i < 100000; ++i) {
    const int64_t bound = int64_t{1} << random.Below(12);
    const int64_t key = static_cast<int64_t>(random.Below(bound)) - 5;
    hot.Offer(key, static_cast<float>(++counts[key]));
  }
  std::vector<uint64_t> largest;
  for (const auto& [key, count] : counts) largest.push_back(count);
  std::sort(largest.rbegin(), largest.rend());
  const std::vector<HotKey> kept = hot.Sorted();
  ASSERT_EQ(kept.size(), HotKeys::kKept);
  for (size_t i = 0; i < kept.size(); ++i) {
    EXPECT_EQ(kept[i].pushes, largest[i]);
    EXPECT_EQ(counts[kept[i].key], kept[i].pushes);
  }
}

TEST(HotKeysTest, KeysWithoutRowsAreCountedToo) {
  HotKeys hot;
  hot.Offer(1, 10);
  hot.Offer(2, 3);
  for (int i = 0; i < 7; ++i) hot.CountRefused(-9);
  for (int i = 0; i < 2; ++i) hot.CountRefused(2);  // then it got a row
  const std::vector<HotKey> sorted = hot.Sorted();
  ASSERT_EQ(sorted.size(), 3u);
  EXPECT_EQ(sorted[0].key, 1);
  EXPECT_EQ(sorted[0].refused, 0u);
  EXPECT_EQ(sorted[1].key, -9);
  EXPECT_EQ(sorted[1].pushes, 7u);
  EXPECT_EQ(sorted[1].refused, 7u);
  EXPECT_EQ(sorted[2].pushes, 5u);
  EXPECT_EQ(sorted[2].refused, 2u);
}

TEST(HotKeysTest, RefusedKeysAreBounded) {
  HotKeys hot;
  const int64_t many = 4 * HotKeys::kRefusedCounters;
  for (int64_t key = 0; key < many; ++key) {
    hot.CountRefused(key);
    if (key % 16 == 0) hot.CountRefused(-1);
  }
  const std::vector<HotKey> sorted = hot.Sorted();
  ASSERT_EQ(sorted.size(), HotKeys::kKept);
  EXPECT_EQ(sorted[0].key, -1);
  EXPECT_GE(sorted[0].refused, many / 16u);
  EXPECT_LE(sorted[0].refused - sorted[0].refused_error, many / 16u);
  EXPECT_LE(sorted[0].refused_error,
            (many + many / 16) / HotKeys::kRefusedCounters);
}

TEST(HotKeysTest, MergesTwoLists) {
  const std::vector<HotKey> merged =
      HotKeys::Merge({{1, 10}, {2, 5}}, {{3, 7}, {4, 5}});
  ASSERT_EQ(merged.size(), 4u);
  EXPECT_EQ(merged[0].key, 1);
  EXPECT_EQ(merged[1].key, 3);
  EXPECT_EQ(merged[2].key, 2);  // ties by key
  EXPECT_EQ(
      HotKeys::Merge(std::vector<HotKey>(12), std::vector<HotKey>(12)).size(),
      HotKeys::kKept);
}

TEST(HotKeysTest, FewKeysAreAllKept) {
  HotKeys hot;
  EXPECT_TRUE(hot.Sorted().empty());
  hot.Offer(5, 1);
  hot.Offer(5, 2);
  ASSERT_EQ(hot.Sorted().size(), 1u);
  EXPECT_EQ(hot.Sorted()[0].pushes, 2u);
}

TEST(HotKeysTest, KeysOfAStateAreTheSame) {
  HotKeys hot;
  Random random(4);
  std::map<int64_t, float> counts;
  for (int i = 0; i < 2000; ++i) {
    const auto key = static_cast<int64_t>(random.Below(100));
    hot.Offer(key, ++counts[key]);
    if (i % 3 == 0) hot.CountRefused(-key);
  }
  HotKeys other;
  for (const HotKeys::Entry& entry : hot.entries()) {
    other.Offer(entry.key, entry.pushes);
  }
  other.MergeRefused(hot.refused().counters(), hot.refused().uncounted_max());
  const std::vector<HotKey> expected = hot.Sorted();
  const std::vector<HotKey> sorted = other.Sorted();
  ASSERT_EQ(sorted.size(), expected.size());
  for (size_t i = 0; i < sorted.size(); ++i) {
    EXPECT_EQ(sorted[i].key, expected[i].key);
    EXPECT_EQ(sorted[i].pushes, expected[i].pushes);
    EXPECT_EQ(sorted[i].refused, expected[i].refused);
  }
}

}  // namespace
}  // namespace syncline::ps
