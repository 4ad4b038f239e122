// Goal: retention deletes what it must and nothing else.
// Method: lists by hand; then random ones, with the rules as properties.

#include "common/checkpoint/retention.h"

#include <algorithm>
#include <set>
#include <vector>

#include "common/base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Whole, at clock and time i, with the cut i.
std::vector<KeptCheckpoint> Series(const std::vector<int64_t>& clocks) {
  std::vector<KeptCheckpoint> all;
  for (const int64_t clock : clocks) {
    all.push_back({{clock, static_cast<uint64_t>(clock)}, true, clock});
  }
  return all;
}

TEST(RetentionTest, KeepsTheLatest) {
  const auto all = Series({10, 20, 30, 40});
  EXPECT_THAT(ChooseDeleted(all, all[3].name, 2, 0), ElementsAre(0, 1));
  EXPECT_THAT(ChooseDeleted(all, all[3].name, 1, 0), ElementsAre(0, 1, 2));
  EXPECT_THAT(ChooseDeleted(all, all[3].name, 4, 0), IsEmpty());
}

TEST(RetentionTest, KeepsTheFirstAtOrAfterEachMultiple) {
  const auto all = Series({90, 110, 130, 200, 290, 310, 330});
  EXPECT_THAT(ChooseDeleted(all, all[6].name, 1, 100), ElementsAre(0, 2, 4));
}

TEST(RetentionTest, WhatWasJustMadeStaysWhereverItsClockIs) {
  // The job went back from 40 to 10, and is at 20 again.
  auto all = Series({10, 30, 40});
  all.push_back({{20, (uint64_t{1} << 52) | 20}, true, 50});
  EXPECT_THAT(ChooseDeleted(all, all[3].name, 2, 0), ElementsAre(0, 1));
  // Even if this machine's clock went back.
  all[3].time_ns = 1;
  EXPECT_THAT(ChooseDeleted(all, all[3].name, 2, 0), ElementsAre(0, 1));
}

TEST(RetentionTest, LeftoversGoButNotWhatMayBeWritten) {
  auto all = Series({10, 20, 30, 40});
  all[1].whole = false;
  all[3].whole = false;
  EXPECT_THAT(ChooseDeleted(all, all[2].name, 2, 0), ElementsAre(1));
}

// One that is read, and the best one (checkpoint_marks.h). It takes nobody's
// place.
TEST(RetentionTest, WhatIsMarkedIsKept) {
  std::vector<KeptCheckpoint> all = Series({10, 20, 30, 40});
  all[0].marked = true;
  EXPECT_THAT(ChooseDeleted(all, all[3].name, 1, 0), ElementsAre(1, 2));
  EXPECT_THAT(ChooseDeleted(all, all[3].name, 2, 0), ElementsAre(1));
}

// Members of an attempt that was lost may live on, and commit what they have.
TEST(RetentionTest, AnEarlierAttemptDeletesNothingOfALaterOne) {
  auto all = Series({10, 20});
  all.push_back({{15, (uint64_t{1} << 52) | 15}, true, 30});
  all.push_back({{30, 30}, true, 40});
  EXPECT_THAT(ChooseDeleted(all, all[3].name, 1, 0), ElementsAre(0, 1));
}

TEST(RetentionTest, HoldsForAnyList) {
  for (uint64_t seed = 1; seed <= 2000; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    std::vector<KeptCheckpoint> all;
    for (size_t i = random.Below(12) + 1; i > 0; --i) {
      all.push_back({{static_cast<int64_t>(random.Below(50)), i},
                     random.Below(4) > 0,
                     static_cast<int64_t>(random.Below(20))});
    }
    const size_t committed = random.Below(all.size());
    all[committed].whole = true;
    const auto keep_last = static_cast<uint32_t>(random.Below(5) + 1);
    const uint64_t keep_every = random.Below(3) * 10;
    const std::vector<size_t> deleted =
        ChooseDeleted(all, all[committed].name, keep_last, keep_every);
    const std::set<size_t> gone(deleted.begin(), deleted.end());
    ASSERT_EQ(gone.size(), deleted.size());
    ASSERT_EQ(gone.count(committed), 0u);
    size_t whole = 0;
    size_t whole_gone = 0;
    for (size_t i = 0; i < all.size(); ++i) {
      const bool is_gone = gone.count(i) > 0;
      if (all[i].name.cut_id > all[committed].name.cut_id) {
        ASSERT_FALSE(is_gone);
        continue;
      }
      whole += all[i].whole ? 1 : 0;
      whole_gone += all[i].whole && is_gone ? 1 : 0;
      ASSERT_TRUE(all[i].whole || is_gone);
    }
    const size_t kept = whole - whole_gone;
    ASSERT_GE(kept, std::min<size_t>(keep_last, whole));
    if (keep_every == 0) {
      ASSERT_EQ(kept, std::min<size_t>(keep_last, whole));
    }
  }
}

}  // namespace
}  // namespace syncline
