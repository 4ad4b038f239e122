// Goal: a caller that is refused all the time has a few lines a minute, and
// the rest is counted; others keep theirs. Method: invented times.

#include "scheduler/service/refusal_limit.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace syncline::scheduler {
namespace {

const absl::Time kNow = absl::FromUnixSeconds(1'900'000'000);

uint64_t TakenOf(RefusalLimit* limit, const std::string& who, int calls) {
  uint64_t taken = 0;
  for (int i = 0; i < calls; ++i) taken += limit->Takes(who) ? 1 : 0;
  return taken;
}

TEST(RefusalLimitTest, WhatACallerHasTooMuchOfIsCounted) {
  RefusalLimit limit;
  EXPECT_TRUE(limit.TakeLeftOut(kNow).empty());
  EXPECT_EQ(TakenOf(&limit, "mallory", 1000), RefusalLimit::kEachMax);
  EXPECT_EQ(TakenOf(&limit, "alice", 3), 3u);
  EXPECT_TRUE(limit.TakeLeftOut(kNow + absl::Seconds(59)).empty());
  EXPECT_EQ(TakenOf(&limit, "mallory", 1), 0u);
  const auto left_out = limit.TakeLeftOut(kNow + absl::Minutes(1));
  ASSERT_EQ(left_out.size(), 1u);
  EXPECT_EQ(left_out[0].who, "mallory");
  EXPECT_EQ(left_out[0].calls, 1001 - RefusalLimit::kEachMax);
  // The next period begins anew.
  EXPECT_EQ(TakenOf(&limit, "mallory", 1), 1u);
  EXPECT_TRUE(limit.TakeLeftOut(kNow + absl::Hours(1)).empty());
}

TEST(RefusalLimitTest, ManyCallersTakeBoundedRoom) {
  RefusalLimit limit;
  limit.TakeLeftOut(kNow);
  uint64_t taken = 0;
  const int callers = static_cast<int>(RefusalLimit::kCallersMax) + 500;
  for (int i = 0; i < callers; ++i) {
    taken += TakenOf(&limit, absl::StrCat("caller", i), 1);
  }
  EXPECT_EQ(taken, RefusalLimit::kAllMax);
  uint64_t left_out = 0;
  const auto all = limit.TakeLeftOut(kNow + absl::Minutes(2));
  for (const RefusalLimit::LeftOut& one : all) left_out += one.calls;
  EXPECT_EQ(taken + left_out, static_cast<uint64_t>(callers));
  EXPECT_LE(all.size(), RefusalLimit::kCallersMax + 1);
}

TEST(RefusalLimitTest, AClockThatGoesBackBeginsAPeriod) {
  RefusalLimit limit;
  limit.TakeLeftOut(kNow);
  TakenOf(&limit, "mallory", 20);
  EXPECT_EQ(limit.TakeLeftOut(kNow - absl::Hours(1)).size(), 1u);
  EXPECT_EQ(TakenOf(&limit, "mallory", 1), 1u);
}

}  // namespace
}  // namespace syncline::scheduler
