// Goal: counts are within the sketch's bound, and no key that is frequent
// enough is missed, with the memory that was said. Method: Zipf and uniform
// keys, and an order made to be hard, against counting all of them.

#include "server/tables/space_saving.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "gtest/gtest.h"

namespace syncline::ps {
namespace {

// Zipf's law with exponent `s` over `vocabulary` keys, by inverting the sums.
std::vector<int64_t> ZipfKeys(uint64_t seed, double s, int vocabulary,
                              int count) {
  std::vector<double> sums;
  double sum = 0;
  for (int i = 1; i <= vocabulary; ++i) sums.push_back(sum += std::pow(i, -s));
  Random random(seed);
  std::vector<int64_t> keys;
  for (int i = 0; i < count; ++i) {
    const auto at =
        std::lower_bound(sums.begin(), sums.end(), sum * random.Uniform());
    // Neither small nor in the order of their counts.
    keys.push_back(static_cast<int64_t>(Mix64(at - sums.begin())));
  }
  return keys;
}

void CheckBound(const std::vector<int64_t>& keys, size_t counters) {
  SpaceSaving sketch(counters);
  std::map<int64_t, uint64_t> counts;
  for (const int64_t key : keys) {
    sketch.Count(key);
    ++counts[key];
  }
  ASSERT_LE(sketch.counters().size(), counters);
  const uint64_t bound = keys.size() / counters;
  std::set<int64_t> counted;
  uint64_t sum = 0;
  for (const SpaceSaving::Counter& counter : sketch.counters()) {
    ASSERT_TRUE(counted.insert(counter.key).second) << counter.key;
    const uint64_t count = counts[counter.key];
    ASSERT_GE(counter.count, count) << counter.key;
    ASSERT_LE(counter.count - counter.error, count) << counter.key;
    ASSERT_LE(counter.error, bound) << counter.key;
    sum += counter.count;
  }
  EXPECT_EQ(sum, keys.size()) << "every key is in one counter";
  for (const auto& [key, count] : counts) {
    EXPECT_TRUE(count <= bound || counted.contains(key)) << count;
  }
}

TEST(SpaceSavingTest, ZipfKeysAreWithinTheBound) {
  for (const double s : {0.8, 1.05, 1.5}) {
    for (const size_t counters : {16u, 256u, 4096u}) {
      SCOPED_TRACE(absl::StrCat("s=", s, " counters=", counters));
      CheckBound(ZipfKeys(7, s, 50'000, 200'000), counters);
    }
  }
}

TEST(SpaceSavingTest, TheMostFrequentOfZipfKeysComeFirst) {
  const std::vector<int64_t> keys = ZipfKeys(3, 1.05, 50'000, 200'000);
  SpaceSaving sketch(1024);
  for (const int64_t key : keys) sketch.Count(key);
  std::vector<SpaceSaving::Counter> sorted(sketch.counters().begin(),
                                           sketch.counters().end());
  std::sort(sorted.begin(), sorted.end(),
            [](const auto& a, const auto& b) { return a.count > b.count; });
  for (uint64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(sorted[i].key, static_cast<int64_t>(Mix64(i))) << i;
    EXPECT_EQ(sorted[i].error, 0u) << "it was there from the start";
  }
}

TEST(SpaceSavingTest, KeysThatComeOnceDoNotHideOneThatComesBack) {
  std::vector<int64_t> keys;
  for (int64_t i = 0; i < 10'000; ++i) {
    keys.push_back(1'000'000 + i);
    if (i % 8 == 0) keys.push_back(-7);
  }
  CheckBound(keys, 16);
}

TEST(SpaceSavingTest, FewKeysAreCountedExactly) {
  SpaceSaving sketch(3);
  EXPECT_TRUE(sketch.counters().empty());
  for (const int64_t key : {5, 6, 5, 7, 5}) sketch.Count(key);
  ASSERT_EQ(sketch.counters().size(), 3u);
  for (const SpaceSaving::Counter& counter : sketch.counters()) {
    EXPECT_EQ(counter.count, counter.key == 5 ? 3u : 1u);
    EXPECT_EQ(counter.error, 0u);
  }
}

TEST(SpaceSavingTest, AMergeIntoAnEmptySketchIsTheSameSketch) {
  SpaceSaving sketch(64);
  for (const int64_t key : ZipfKeys(1, 1.05, 1000, 5000)) sketch.Count(key);
  SpaceSaving other(64);
  other.Merge(sketch.counters(), sketch.uncounted_max());
  for (const int64_t key : ZipfKeys(2, 1.05, 1000, 5000)) {
    sketch.Count(key);
    other.Count(key);
  }
  ASSERT_EQ(other.counters().size(), sketch.counters().size());
  for (size_t i = 0; i < sketch.counters().size(); ++i) {
    EXPECT_EQ(other.counters()[i].key, sketch.counters()[i].key);
    EXPECT_EQ(other.counters()[i].count, sketch.counters()[i].count);
    EXPECT_EQ(other.counters()[i].error, sketch.counters()[i].error);
  }
}

// A sketch that is full remembers how often another one's keys may have come.
TEST(SpaceSavingTest, AMergeKeepsTheLargerBound) {
  SpaceSaving sketch(2);
  sketch.Merge({{1, 5, 0}, {2, 6, 0}}, /*uncounted_max=*/100);
  EXPECT_EQ(sketch.uncounted_max(), 100u);
  sketch.Count(3);  // it may have come 100 times before
  for (const SpaceSaving::Counter& counter : sketch.counters()) {
    if (counter.key != 3) continue;
    EXPECT_EQ(counter.count, 101u);
    EXPECT_EQ(counter.error, 100u);
  }
  EXPECT_EQ(sketch.uncounted_max(), 100u);
}

// A lane may get a part of another lane's keys, and those of several.
TEST(SpaceSavingTest, TheBoundHoldsForPartsOfSketches) {
  const std::vector<int64_t> keys = ZipfKeys(3, 1.05, 1000, 20000);
  SpaceSaving first(64);
  std::map<int64_t, uint64_t> counts;
  for (size_t i = 0; i < keys.size() / 2; ++i) {
    first.Count(keys[i]);
    ++counts[keys[i]];
  }
  SpaceSaving part(64);
  std::vector<SpaceSaving::Counter> even;
  for (const SpaceSaving::Counter& counter : first.counters()) {
    if (counter.key % 2 == 0) even.push_back(counter);
  }
  part.Merge(even, first.uncounted_max());
  part.Merge(even, 0);  // a key that is there already is not counted twice
  for (size_t i = keys.size() / 2; i < keys.size(); ++i) {
    if (keys[i] % 2 != 0) continue;
    part.Count(keys[i]);
    ++counts[keys[i]];
  }
  ASSERT_LE(part.counters().size(), 64u);
  for (const SpaceSaving::Counter& counter : part.counters()) {
    EXPECT_GE(counter.count, counts[counter.key]);
    EXPECT_LE(counter.count - counter.error, counts[counter.key]);
  }
}

}  // namespace
}  // namespace syncline::ps
