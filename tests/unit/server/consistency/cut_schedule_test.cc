// Goal: cuts are announced, passed, held and forgotten in order.
// Method: examples; the histories in tests/simulation use it with the rest.

#include "server/consistency/cut_schedule.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline::ps {
namespace {

using ::testing::HasSubstr;

const absl::Time kStart = absl::UnixEpoch();
const absl::Duration kHold = absl::Seconds(10);

TEST(CutScheduleTest, TheFirstCutInTheWayGates) {
  CutSchedule cuts;
  EXPECT_EQ(cuts.Gate(0, 100), nullptr);
  ASSERT_TRUE(cuts.Announce(1, {3, 4}, kHold).ok());
  ASSERT_TRUE(cuts.Announce(2, {6, 6}, kHold).ok());
  EXPECT_EQ(cuts.Gate(0, 2), nullptr);
  EXPECT_EQ(cuts.Gate(0, 3)->id, 1u);
  EXPECT_EQ(cuts.Gate(1, 3), nullptr);
  EXPECT_EQ(cuts.Gate(0, 7)->id, 1u);
  ASSERT_TRUE(cuts.End(1).ok());
  EXPECT_EQ(cuts.Gate(0, 3), nullptr);
  EXPECT_EQ(cuts.Gate(0, 6)->id, 2u);
}

TEST(CutScheduleTest, RepeatsAreHarmlessAndContradictionsAreNot) {
  CutSchedule cuts;
  ASSERT_TRUE(cuts.Announce(1, {3}, kHold).ok());
  EXPECT_TRUE(cuts.Announce(1, {3}, kHold).ok());
  EXPECT_FALSE(cuts.Announce(1, {4}, kHold).ok());
  ASSERT_TRUE(cuts.Announce(2, {3}, kHold).ok());
  ASSERT_TRUE(cuts.Announce(4, {5}, kHold).ok());
  ASSERT_TRUE(cuts.Announce(5, {6}, kHold).ok());
  EXPECT_EQ(cuts.Announce(3, {9}, kHold).code(),
            absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(cuts.End(1).ok());
  EXPECT_TRUE(cuts.End(1).ok());
  EXPECT_EQ(cuts.End(9).code(), absl::StatusCode::kFailedPrecondition);
  // Nor one that comes after the end, where both were on their way together.
  EXPECT_TRUE(cuts.Announce(9, {9}, kHold).ok());
  EXPECT_EQ(cuts.Find(9), nullptr);
  // A repeat that comes late must not bring the cut back.
  EXPECT_TRUE(cuts.Announce(1, {3}, kHold).ok());
  EXPECT_EQ(cuts.Find(1), nullptr);
  EXPECT_TRUE(cuts.Announce(3, {9}, kHold).ok());
}

// An epoch's end is announced long before workers come to it.
TEST(CutScheduleTest, ACutMayComeBeforeAnAnnouncedOne) {
  CutSchedule cuts;
  ASSERT_TRUE(cuts.Announce(9, {20, 20}, kHold).ok());
  ASSERT_TRUE(cuts.Announce(3, {8, 9}, kHold).ok());
  EXPECT_EQ(cuts.Next()->id, 3u);
  EXPECT_EQ(cuts.Gate(0, 8)->id, 3u);
  EXPECT_EQ(cuts.Gate(1, 8), nullptr);
  // Not between the two, but before both, or behind the first.
  const absl::Status crossing = cuts.Announce(4, {7, 10}, kHold);
  EXPECT_EQ(crossing.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(crossing.message()),
              HasSubstr("possible are clocks 8,10"));
  EXPECT_EQ(cuts.SmallestClocks(4, {7, 10}), (std::vector<int64_t>{8, 10}));
  EXPECT_EQ(cuts.SmallestClocks(4, {7, 7}), (std::vector<int64_t>{7, 7}));
  EXPECT_EQ(cuts.SmallestClocks(4, {19, 21}), (std::vector<int64_t>{21, 21}))
      << "of equal clocks the smaller id is first";
  EXPECT_EQ(cuts.SmallestClocks(10, {19, 21}), (std::vector<int64_t>{20, 21}));
  // Nothing comes before a cut that was passed.
  cuts.PassNext(kStart);
  EXPECT_EQ(cuts.SmallestClocks(4, {7, 7}), (std::vector<int64_t>{8, 9}));
  EXPECT_TRUE(cuts.Announce(4, {8, 9}, kHold).ok());
  EXPECT_EQ(cuts.Next()->id, 4u);
}

TEST(CutScheduleTest, HoldingStartsWhenTheCutIsPassed) {
  CutSchedule cuts;
  ASSERT_TRUE(cuts.Announce(1, {3}, kHold).ok());
  ASSERT_TRUE(cuts.Announce(2, {5}, kHold).ok());
  EXPECT_EQ(cuts.Expire(kStart + absl::Hours(1)), 0);
  EXPECT_EQ(cuts.Next()->id, 1u);
  cuts.PassNext(kStart);
  EXPECT_EQ(cuts.Next()->id, 2u);
  EXPECT_TRUE(cuts.Find(1)->passed);
  EXPECT_EQ(cuts.Expire(kStart + kHold - absl::Nanoseconds(1)), 0);
  EXPECT_EQ(cuts.Expire(kStart + kHold), 1);
  EXPECT_EQ(cuts.Find(1), nullptr);
  EXPECT_EQ(cuts.Next()->id, 2u);
  EXPECT_THAT(cuts.Absence(1), HasSubstr("abandoned"));
  EXPECT_THAT(cuts.Absence(9), HasSubstr("not announced"));
  EXPECT_THAT(std::string(cuts.End(1).message()), HasSubstr("abandoned"));
}

TEST(CutScheduleTest, GoesOnWithTheCutsOfAState) {
  CutSchedule cuts;
  ASSERT_TRUE(cuts.Announce(1, {1, 1}, kHold).ok());
  ASSERT_TRUE(cuts.End(1).ok());
  ASSERT_TRUE(cuts.Announce(2, {3, 4}, kHold, CutUse::kCheckpoint).ok());
  ASSERT_TRUE(cuts.Announce(3, {3, 4}, kHold, CutUse::kRouting).ok());
  ASSERT_TRUE(cuts.Announce(9, {8, 8}, 2 * kHold).ok());
  cuts.PassNext(kStart);
  cuts.PassNext(kStart);
  ControllerState state;
  cuts.Export(/*at=*/3, &state);
  CutSchedule later;
  later.Import(state);
  ASSERT_EQ(later.cuts().size(), 2u);
  EXPECT_EQ(later.Next()->id, 2u) << "passed anew";
  EXPECT_EQ(later.Next()->use, CutUse::kCheckpoint);
  EXPECT_EQ(later.Gate(0, 3)->id, 2u);
  EXPECT_EQ(later.cuts()[1].clocks, (std::vector<int64_t>{8, 8}));
  EXPECT_EQ(later.cuts()[1].hold, 2 * kHold);
  // Those that have ended, the one at which the state is among them.
  EXPECT_TRUE(later.End(1).ok());
  EXPECT_TRUE(later.End(3).ok());
  EXPECT_TRUE(later.Announce(3, {3, 4}, kHold).ok());
  EXPECT_EQ(later.Find(3), nullptr);
}

// One shard had heard of an end, the other of an announcement.
TEST(CutScheduleTest, StatesOfSeveralShardsAreTakenTogether) {
  ControllerState state;
  state.cuts = {{.id = 1, .clocks = {3, 3}, .hold = kHold},
                {.id = 9, .clocks = {8, 8}, .hold = kHold}};
  state.past_cuts = {{.id = 4}};
  state.cuts.push_back(state.cuts[1]);
  state.cuts.push_back({.id = 5, .clocks = {6, 6}, .hold = kHold});
  state.cuts.push_back({.id = 6, .clocks = {9, 7}, .hold = kHold});
  state.past_cuts.push_back({.id = 1});
  CutSchedule cuts;
  cuts.Import(state);
  ASSERT_EQ(cuts.cuts().size(), 2u);
  EXPECT_EQ(cuts.cuts()[0].id, 5u);
  EXPECT_EQ(cuts.cuts()[1].id, 9u);
  EXPECT_FALSE(cuts.Knows(6)) << "it crosses the last one";
  EXPECT_TRUE(cuts.End(1).ok());
}

}  // namespace
}  // namespace syncline::ps
