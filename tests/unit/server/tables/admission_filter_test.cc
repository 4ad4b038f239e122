// Goal: counts are never too low before the filter ages, seldom too high, and
// it never fills up. Method: exact counts of seeded keys beside the filter's.

#include "server/tables/admission_filter.h"

#include <algorithm>

#include "common/base/random.h"
#include "gtest/gtest.h"

namespace syncline::ps {
namespace {

TEST(AdmissionFilterTest, CountsUpToItsMost) {
  AdmissionFilter filter(1 << 20);
  for (uint32_t i = 1; i <= 300; ++i) {
    EXPECT_EQ(filter.Sight(Mix64(7)), std::min(i, AdmissionFilter::kCountMax));
  }
}

TEST(AdmissionFilterTest, SeldomTakesOneKeyForAnother) {
  AdmissionFilter filter(1 << 20);
  int seen_before = 0;
  for (uint64_t key = 0; key < (1 << 17); ++key) {
    seen_before += filter.Sight(Mix64(key)) > 1;
  }
  EXPECT_LT(seen_before, (1 << 17) / 50);
}

TEST(AdmissionFilterTest, NeverTooLowBeforeItAges) {
  AdmissionFilter filter(1 << 16);
  int too_low = 0;
  for (uint32_t round = 1; round <= 4; ++round) {
    for (uint64_t key = 0; key < (1 << 11); ++key) {  // an eighth in all
      too_low += filter.Sight(Mix64(key)) < round;
    }
  }
  EXPECT_EQ(too_low, 0);
}

TEST(AdmissionFilterTest, KeysSeenOnceDoNotFillItUp) {
  AdmissionFilter filter(1 << 14);
  int seen_before = 0;
  for (uint64_t key = 0; key < 1000000; ++key) {
    seen_before += filter.Sight(Mix64(key)) > 1;
  }
  EXPECT_LT(seen_before, 1000000 / 20);
}

TEST(AdmissionFilterTest, WithoutMemoryItLetsAllIn) {
  AdmissionFilter filter(63);
  EXPECT_EQ(filter.memory_bytes(), 0u);
  EXPECT_EQ(filter.Sight(1), AdmissionFilter::kCountMax);
}

TEST(AdmissionFilterTest, AMergeIntoAnEmptyFilterIsTheSameFilter) {
  AdmissionFilter filter(1 << 12);
  Random random(5);
  for (int i = 0; i < 700; ++i) filter.Sight(Mix64(random.Below(300)));
  AdmissionFilter other(1 << 12);
  // In two pieces, as a state has them.
  other.Merge(1000, filter.counters().subspan(1000));
  other.Merge(0, filter.counters().first(1000));
  other.MergeSightings(filter.sightings());
  // Over an age, too.
  for (int i = 0; i < 3000; ++i) {
    const uint64_t hash = Mix64(random.Below(600));
    ASSERT_EQ(other.Sight(hash), filter.Sight(hash)) << i;
  }
}

TEST(AdmissionFilterTest, AMergeNeverLowersACount) {
  AdmissionFilter filter(1 << 12);
  AdmissionFilter other(1 << 12);
  for (int i = 0; i < 3; ++i) filter.Sight(Mix64(1));
  for (int i = 0; i < 5; ++i) other.Sight(Mix64(1));
  for (int i = 0; i < 9; ++i) other.Sight(Mix64(2));
  filter.Merge(0, other.counters());
  EXPECT_EQ(filter.Sight(Mix64(1)), 6u);
  EXPECT_EQ(filter.Sight(Mix64(2)), 10u);
  // No count of sightings, whoever wrote it, keeps the filter from ageing.
  filter.MergeSightings(~uint64_t{0});
  EXPECT_LE(filter.sightings(), (1u << 12) / 8);
}

}  // namespace
}  // namespace syncline::ps
