// Goal: a row lives exactly as long as its rule says.
// Method: drawn pasts at both sides of each limit.

#include "common/update/row_expiry.h"

#include "gtest/gtest.h"

namespace syncline {
namespace {

using Verdict = RowExpiry::Verdict;

TEST(RowExpiryTest, WithoutARuleEverythingLives) {
  const RowExpiry expiry({});
  EXPECT_FALSE(expiry.enabled());
  EXPECT_EQ(expiry.Judge(0, 0, 4000000000u, 0), Verdict::kLives);
}

TEST(RowExpiryTest, ByClocksUnseen) {
  const RowExpiry expiry({.unseen_clocks = 10});
  EXPECT_TRUE(expiry.enabled());
  EXPECT_EQ(expiry.Judge(1, 5, 15, 0), Verdict::kLives);
  EXPECT_EQ(expiry.Judge(1, 5, 16, 0), Verdict::kTooOld);
  EXPECT_EQ(expiry.Judge(1, 50, 16, 0), Verdict::kLives);  // a slow worker's
  EXPECT_EQ(expiry.SweepClocks(), 1);
  EXPECT_EQ(RowExpiry({.unseen_clocks = 1600}).SweepClocks(), 100);
}

TEST(RowExpiryTest, ByAClockThatIsTooOld) {
  const RowExpiry expiry({.unseen_time = absl::Hours(1)});
  EXPECT_EQ(expiry.Judge(1, 5, 100, 5), Verdict::kLives);
  EXPECT_EQ(expiry.Judge(1, 4, 100, 5), Verdict::kTooOld);
}

TEST(RowExpiryTest, ByScoreThatDecaysWithThePeriods) {
  const RowExpiry expiry({.min_score = 1, .decay = 0.5f, .decay_clocks = 100});
  EXPECT_EQ(expiry.ScoreAt(8, 99, 99), 8);
  EXPECT_EQ(expiry.ScoreAt(8, 99, 100), 4);
  EXPECT_EQ(expiry.ScoreAt(8, 99, 199), 4);
  EXPECT_EQ(expiry.ScoreAt(8, 100, 199), 8);
  EXPECT_EQ(expiry.ScoreAt(8, 150, 450), 1);
  EXPECT_EQ(expiry.ScoreAt(8, 450, 150), 8);
  EXPECT_EQ(expiry.Judge(8, 150, 450, 0), Verdict::kLives);
  EXPECT_EQ(expiry.Judge(8, 150, 500, 0), Verdict::kTooLowScore);
  // Beyond the powers that are kept.
  EXPECT_LT(expiry.ScoreAt(8, 0, 100 * 200), 1e-30f);
}

TEST(ClockHistoryTest, SaysWhichClockIsTooOld) {
  const absl::Time start = absl::FromUnixSeconds(1);
  ClockHistory history(absl::Minutes(10));
  for (int minute = 0; minute <= 9; ++minute) {
    history.Observe(minute * 100, start + absl::Minutes(minute));
    EXPECT_EQ(history.too_old(), 0u);
  }
  history.Observe(1000, start + absl::Minutes(10));
  EXPECT_EQ(history.too_old(), 0u);  // what was pushed at clock 0 is ten old
  history.Observe(1100, start + absl::Minutes(11));
  EXPECT_EQ(history.too_old(), 100u);
  history.Observe(1200, start + absl::Minutes(16.5));
  EXPECT_EQ(history.too_old(), 600u);
}

TEST(ClockHistoryTest, NothingAgesWhileNoClockPasses) {
  const absl::Time start = absl::FromUnixSeconds(1);
  ClockHistory history(absl::Minutes(10));
  for (int hour = 0; hour < 5; ++hour) {
    history.Observe(7, start + absl::Hours(hour));
  }
  EXPECT_LE(history.too_old(), 7u);
}

TEST(ClockHistoryTest, WithoutATimeNothingIsTooOld) {
  ClockHistory history(absl::ZeroDuration());
  history.Observe(5, absl::FromUnixSeconds(1));
  history.Observe(6, absl::FromUnixSeconds(1000000));
  EXPECT_EQ(history.too_old(), 0u);
}

// The other process has another clock, and starts an hour later.
TEST(ClockHistoryTest, AHistoryGoesOnFromItsAges) {
  const absl::Time start = absl::UnixEpoch();
  const absl::Time later = start + absl::Hours(10000);
  ClockHistory history(absl::Minutes(64));
  for (int i = 0; i < 100; ++i) {
    history.Observe(i, start + i * absl::Minutes(1));
  }
  ASSERT_GT(history.too_old(), 0u);
  ClockHistory other(absl::Minutes(64));
  other.Import(history.Export(start + absl::Minutes(99)), later);
  EXPECT_EQ(other.too_old(), history.too_old());
  for (int i = 1; i < 200; ++i) {
    history.Observe(99 + i, start + absl::Minutes(99 + i));
    other.Observe(99 + i, later + absl::Minutes(i));
    ASSERT_EQ(other.too_old(), history.too_old()) << i;
  }
}

}  // namespace
}  // namespace syncline
