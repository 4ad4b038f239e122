// Goal: ids of cuts are unique and in the order of the clocks.
// Method: ids of neighbouring cuts, at the ends of each field.

#include "common/cuts/cut_id.h"

#include "gtest/gtest.h"

namespace syncline {
namespace {

TEST(CutIdTest, LaterClocksHaveLargerIdsWhoeverAnnounces) {
  EXPECT_LT(MakeCutId(1, 7, CutSeries::kScheduler, 1023),
            MakeCutId(1, 8, CutSeries::kEpochEnds, 0));
  EXPECT_LT(MakeCutId(1, 7, CutSeries::kChief, 0),
            MakeCutId(1, 7, CutSeries::kChief, 1));
  EXPECT_LT(MakeCutId(1, kCutClockMax, CutSeries::kScheduler, 1023),
            MakeCutId(2, 0, CutSeries::kEpochEnds, 0));
}

TEST(CutIdTest, MembersAndAttemptsHaveIdsOfTheirOwn) {
  EXPECT_NE(MakeCutId(1, 7, CutSeries::kChief, 1023),
            MakeCutId(1, 7, CutSeries::kEvaluator, 0));
  EXPECT_NE(MakeCutId(1, 7, CutSeries::kChief, 0),
            MakeCutId(2, 7, CutSeries::kChief, 0));
  EXPECT_EQ(MakeCutId(4096, 7, CutSeries::kChief, 0),
            MakeCutId(0, 7, CutSeries::kChief, 0))
      << "after 4096 attempts";
}

TEST(CutIdTest, AnEpochsEndHasAnId) {
  EXPECT_NE(MakeCutId(0, 1, CutSeries::kEpochEnds, 0), 0u);
}

}  // namespace
}  // namespace syncline
