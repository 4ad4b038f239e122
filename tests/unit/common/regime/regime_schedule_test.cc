// Goal: every clock has exactly one regime, and what has begun keeps its own.
// Method: schedules asked at and around the borders; additions that repeat,
// contradict, go back or come too late.

#include "common/regime/regime_schedule.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace syncline {
namespace {

using ::testing::HasSubstr;

TrainingRegime Async(int64_t first_clock) {
  return {.first_clock = first_clock, .mode = ConsistencyMode::kAsync};
}

TrainingRegime Bounded(int64_t first_clock, int64_t bound) {
  return {.first_clock = first_clock,
          .mode = ConsistencyMode::kBoundedStaleness,
          .staleness_bound = bound};
}

TEST(TrainingRegimeTest, TheBoundIsThatOfTheMode) {
  EXPECT_EQ(TrainingRegime().bound(), 0);  // SYNC
  EXPECT_EQ(Bounded(0, 3).bound(), 3);
  EXPECT_EQ(Async(0).bound(), std::nullopt);
}

TEST(RegimeScheduleTest, EachRegimeHoldsUntilTheNextBegins) {
  RegimeSchedule schedule;
  ASSERT_OK(schedule.Add(Async(5), 0));
  ASSERT_OK(schedule.Add(Bounded(9, 2), 0));
  EXPECT_EQ(schedule.At(0), TrainingRegime());
  EXPECT_EQ(schedule.At(4), TrainingRegime());
  EXPECT_EQ(schedule.At(5), Async(5));
  EXPECT_EQ(schedule.At(8), Async(5));
  EXPECT_EQ(schedule.At(9), Bounded(9, 2));
  EXPECT_EQ(schedule.At(RegimeSchedule::kNever), Bounded(9, 2));
}

TEST(RegimeScheduleTest, TheFirstOneHoldsBeforeItsClockToo) {
  const RegimeSchedule schedule(Async(7));
  EXPECT_EQ(schedule.At(0), Async(7));
}

TEST(RegimeScheduleTest, ARepeatIsNoSecondRegime) {
  RegimeSchedule schedule;
  ASSERT_OK(schedule.Add(Async(5), 3));
  ASSERT_OK(schedule.Add(Bounded(9, 2), 3));
  // However late: it has been obeyed since.
  ASSERT_OK(schedule.Add(Async(5), 100));
  EXPECT_EQ(schedule.regimes().size(), 3u);
}

TEST(RegimeScheduleTest, RefusesWhatContradictsOrComesTooLate) {
  RegimeSchedule schedule;
  ASSERT_OK(schedule.Add(Async(5), 0));
  const absl::Status other = schedule.Add(Bounded(5, 1), 0);
  EXPECT_EQ(other.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(other.message()),
              HasSubstr("from clock 5: another one begins there"));
  const absl::Status back = schedule.Add(Bounded(4, 1), 0);
  EXPECT_EQ(back.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(back.message()),
              HasSubstr("from clock 4: a later one begins at clock 5"));
  const absl::Status late = schedule.Add(Bounded(7, 1), 8);
  EXPECT_EQ(late.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(late.message()),
              HasSubstr("has begun; the smallest possible one is 8"));
  EXPECT_EQ(schedule.regimes().size(), 2u);
  EXPECT_OK(schedule.Add(Bounded(8, 1), 8));
}

TEST(RegimeScheduleTest, IsBounded) {
  RegimeSchedule schedule;
  for (size_t i = 1; i < RegimeSchedule::kRegimesMax; ++i) {
    ASSERT_OK(schedule.Add(Async(static_cast<int64_t>(i)), 0));
  }
  EXPECT_EQ(schedule.Add(Async(RegimeSchedule::kRegimesMax), 0).code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(RegimeScheduleTest, KnowsWhereSyncBeginsAndEnds) {
  RegimeSchedule schedule(Async(0));
  EXPECT_EQ(schedule.NextSyncChange(0), RegimeSchedule::kNever);
  EXPECT_FALSE(schedule.AnySync());
  ASSERT_OK(schedule.Add(Bounded(3, 1), 0));
  ASSERT_OK(schedule.Add({.first_clock = 6}, 0));  // SYNC
  ASSERT_OK(schedule.Add({.first_clock = 7, .learning_rate_factor = 2}, 0));
  ASSERT_OK(schedule.Add(Async(9), 0));
  EXPECT_EQ(schedule.NextSyncChange(0), 6);
  EXPECT_EQ(schedule.NextSyncChange(5), 6);
  EXPECT_EQ(schedule.NextSyncChange(6), 9);
  EXPECT_EQ(schedule.NextSyncChange(9), RegimeSchedule::kNever);
  EXPECT_TRUE(schedule.AnySync());
  EXPECT_FALSE(schedule.AllSync());
  EXPECT_TRUE(RegimeSchedule().AllSync());
}

TEST(RegimeScheduleTest, CutsAreAsCloseAsTheStrictestRegimeWants) {
  RegimeSchedule schedule(Async(0));
  EXPECT_EQ(schedule.CutSpread(), std::nullopt);
  ASSERT_OK(schedule.Add(Bounded(2, 5), 0));
  ASSERT_OK(schedule.Add(Bounded(4, 3), 0));
  EXPECT_EQ(schedule.CutSpread(), 3);
  ASSERT_OK(schedule.Add({.first_clock = 6}, 0));  // SYNC
  EXPECT_EQ(schedule.CutSpread(), 0);
}

TEST(RegimeScheduleTest, RoomIsForTheWidestType) {
  RegimeSchedule schedule(TrainingRegime{.wire_type = ElementType::kBfloat16});
  EXPECT_EQ(schedule.WidestWireType(), ElementType::kBfloat16);
  ASSERT_OK(schedule.Add({.first_clock = 2}, 0));
  ASSERT_OK(
      schedule.Add({.first_clock = 4, .wire_type = ElementType::kFloat16}, 0));
  EXPECT_EQ(schedule.WidestWireType(), ElementType::kFloat32);
}

}  // namespace
}  // namespace syncline
