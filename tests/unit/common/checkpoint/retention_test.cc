// Goal: retention deletes what it must and nothing else.
// Method: lists by hand; then random ones, with the rules as properties.

#include "common/checkpoint/retention.h"

#include <algorithm>
#include <set>
#include <vector>

#include "common/base/random.h"
#include "common/cuts/cut_id.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

KeptCheckpoint Whole(int64_t clock, uint32_t attempt = 0) {
  return {{clock, MakeCutId(attempt, clock, CutSeries::kChief, 0)}, true};
}

std::vector<KeptCheckpoint> Series(const std::vector<int64_t>& clocks) {
  std::vector<KeptCheckpoint> all;
  for (const int64_t clock : clocks) all.push_back(Whole(clock));
  return all;
}

// Where the attempt of `committed` began at `start_clock`.
std::vector<size_t> Deleted(const std::vector<KeptCheckpoint>& all,
                            size_t committed, uint32_t keep_last,
                            uint64_t keep_every = 0, int64_t start_clock = 0) {
  return ChooseDeleted(all, all[committed].name, start_clock, keep_last,
                       keep_every);
}

TEST(RetentionTest, KeepsTheLatest) {
  const auto all = Series({10, 20, 30, 40});
  EXPECT_THAT(Deleted(all, 3, 2), ElementsAre(0, 1));
  EXPECT_THAT(Deleted(all, 3, 1), ElementsAre(0, 1, 2));
  EXPECT_THAT(Deleted(all, 3, 4), IsEmpty());
}

TEST(RetentionTest, KeepsTheFirstAtOrAfterEachMultiple) {
  const auto all = Series({90, 110, 130, 200, 290, 310, 330});
  EXPECT_THAT(Deleted(all, 6, 1, 100), ElementsAre(0, 2, 4));
}

// The job went back from 40 to 10: what is behind that may be damaged, and does
// not count.
TEST(RetentionTest, WhatTheJobHasLeftTakesNoPlace) {
  auto all = Series({10, 30, 40});
  all.push_back(Whole(20, /*attempt=*/1));
  EXPECT_THAT(Deleted(all, 3, 2, 0, /*start_clock=*/10), ElementsAre(1));
  EXPECT_THAT(Deleted(all, 3, 1, 0, /*start_clock=*/10), ElementsAre(0, 1, 2));
  // Beyond the clocks that were left, and in a later attempt that says nothing
  // of where the one before it began.
  all.push_back(Whole(50, 1));
  EXPECT_THAT(Deleted(all, 4, 2, 0, 10), ElementsAre(0, 1, 2));
  all.push_back(Whole(60, 2));
  EXPECT_THAT(Deleted(all, 5, 3, 0, 50), ElementsAre(0, 1, 2));
}

TEST(RetentionTest, OfAMultipleTheOneMadeAgainIsKept) {
  auto all = Series({50, 100});
  all.push_back(Whole(100, 1));
  all.push_back(Whole(150, 1));
  EXPECT_THAT(Deleted(all, 3, 1, 100, /*start_clock=*/50), ElementsAre(0, 1));
}

TEST(RetentionTest, LeftoversGoButNotWhatMayBeWritten) {
  auto all = Series({10, 20, 30, 40});
  all[1].whole = false;
  all[3].whole = false;
  EXPECT_THAT(Deleted(all, 2, 2), ElementsAre(1));
}

// One that is read, and the best one (checkpoint_marks.h). It takes nobody's
// place.
TEST(RetentionTest, WhatIsMarkedIsKept) {
  std::vector<KeptCheckpoint> all = Series({10, 20, 30, 40});
  all[0].marked = true;
  EXPECT_THAT(Deleted(all, 3, 1), ElementsAre(1, 2));
  EXPECT_THAT(Deleted(all, 3, 2), ElementsAre(1));
}

// Members of an attempt that was lost may live on, and commit what they have.
TEST(RetentionTest, AnEarlierAttemptDeletesNothingOfALaterOne) {
  auto all = Series({10, 20});
  all.push_back(Whole(15, 1));
  all.push_back(Whole(30));
  EXPECT_THAT(Deleted(all, 3, 1), ElementsAre(0, 1));
}

TEST(RetentionTest, HoldsForAnyList) {
  for (uint64_t seed = 1; seed <= 2000; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    std::vector<KeptCheckpoint> all;
    for (size_t i = random.Below(12) + 1; i > 0; --i) {
      all.push_back(
          {{static_cast<int64_t>(random.Below(50)), i}, random.Below(4) > 0});
    }
    const size_t committed = random.Below(all.size());
    all[committed].whole = true;
    const auto keep_last = static_cast<uint32_t>(random.Below(5) + 1);
    const uint64_t keep_every = random.Below(3) * 10;
    const std::vector<size_t> deleted =
        Deleted(all, committed, keep_last, keep_every);
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
