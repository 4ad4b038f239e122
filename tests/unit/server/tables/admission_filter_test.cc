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

}  // namespace
}  // namespace syncline::ps
