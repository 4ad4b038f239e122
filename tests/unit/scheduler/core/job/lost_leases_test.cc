#include "scheduler/core/job/lost_leases.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline::scheduler {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

WorkerTakenOut Answer(int64_t begun_until, int64_t whole_until,
                      std::vector<int64_t> leased = {}) {
  WorkerTakenOut answer;
  WorkerTakenOut::Shard* const shard = answer.add_shards();
  shard->set_begun_until(begun_until);
  shard->set_whole_until(whole_until);
  shard->mutable_leased()->Add(leased.begin(), leased.end());
  return answer;
}

TEST(LostLeasesTest, WhatNoShardHasReturns) {
  LostLeases leases;
  EXPECT_FALSE(leases.OnTakenOut(0, Answer(8, 8, {9, 12}), 2).has_value());
  EXPECT_FALSE(leases.OnTakenOut(0, Answer(8, 8, {9, 12}), 2).has_value())
      << "a repeat of the same ps";
  const auto& settled = leases.OnTakenOut(1, Answer(8, 8), 2);
  ASSERT_TRUE(settled.has_value());
  EXPECT_THAT(settled->returned, ElementsAre(9, 12));
  EXPECT_EQ(settled->torn, std::nullopt);
  // A later answer changes nothing.
  leases.OnTakenOut(1, Answer(10, 10), 2);
  EXPECT_THAT(leases.settled()->returned, ElementsAre(9, 12));
}

TEST(LostLeasesTest, AClockThatSomeShardHasIsTorn) {
  LostLeases leases;
  leases.OnTakenOut(0, Answer(8, 8, {9, 12}), 2);
  const auto& settled = leases.OnTakenOut(1, Answer(10, 8), 2);
  EXPECT_THAT(settled->returned, ElementsAre(12));
  EXPECT_EQ(settled->torn, 9);
}

TEST(LostLeasesTest, AClockThatAllShardsHaveIsMade) {
  LostLeases leases;
  const auto& settled = leases.OnTakenOut(0, Answer(10, 10, {12}), 1);
  EXPECT_THAT(settled->returned, ElementsAre(12));
  EXPECT_EQ(settled->torn, std::nullopt);
}

// The scheduler was restarted between its commands to two ps, and the chief has
// made a clock since then.
TEST(LostLeasesTest, WhatAShardWasToldBeforeHolds) {
  WorkerTakenOut told = Answer(8, 8, {});
  told.mutable_shards(0)->set_settled(true);
  told.mutable_shards(0)->add_returned(9);
  LostLeases leases;
  leases.OnTakenOut(1, told, 2);
  const auto& settled = leases.OnTakenOut(0, Answer(8, 8, {9, 12}), 2);
  EXPECT_THAT(settled->returned, ElementsAre(9));
}

TEST(LostLeasesTest, APsWithoutParametersHasNothing) {
  LostLeases leases;
  leases.OnTakenOut(0, Answer(3, 3, {4}), 2);
  EXPECT_THAT(leases.OnTakenOut(1, WorkerTakenOut(), 2)->returned,
              ElementsAre(4));
}

TEST(LostLeasesTest, TheTextNamesTheClocks) {
  EXPECT_EQ(DescribeLeases({.returned = {9, 12}}, "the chief"),
            "clocks 9 and 12 of its leases, which no ps had anything of, are "
            "made by the chief");
  EXPECT_THAT(
      DescribeLeases({.returned = {9}, .torn = 7}, "the chief"),
      testing::AllOf(HasSubstr("clock 9 of its leases"),
                     HasSubstr("is made by the chief; clock 7 is torn")));
  EXPECT_EQ(DescribeLeases({}, "the chief"),
            "no clock that was leased to it is open");
}

}  // namespace
}  // namespace syncline::scheduler
