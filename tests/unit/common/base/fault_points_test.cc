// Goal: a fault strikes at the n-th time at its point, once, with its action;
// without a fault nothing happens; what cannot be is refused, an unknown name
// with the list of names. Method: faults are armed in the test's own process,
// in one child per death.

#include "common/base/fault_points.h"

#include <csignal>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

using testing::AllOf;
using testing::HasSubstr;

void Arm(absl::string_view text) {
  const absl::StatusOr<Fault> fault = ParseFault(text);
  ASSERT_TRUE(fault.ok()) << fault.status();
  ArmFaults({*fault});
}

TEST(FaultPointsTest, EachPointHasANameAPlaceAndAProcess) {
  std::set<std::string> names;
  for (size_t i = 0; i < FaultPoints().size(); ++i) {
    const FaultPointInfo& info = FaultPoints()[i];
    EXPECT_EQ(static_cast<size_t>(info.point), i) << info.name;
    EXPECT_TRUE(names.emplace(info.name).second) << info.name;
    EXPECT_TRUE(info.process == "ps" || info.process == "worker" ||
                info.process == "scheduler" || info.process == "every")
        << info.name;
    EXPECT_FALSE(info.where.empty()) << info.name;
    const std::string action = info.is_mutant ? "mutate" : "exit";
    const auto fault = ParseFault(absl::StrCat(info.name, ":3:", action));
    ASSERT_TRUE(fault.ok()) << fault.status();
    EXPECT_EQ(fault->point, info.point);
    EXPECT_EQ(fault->count, 3);
  }
  EXPECT_EQ(names.size(), kFaultPointCount);
}

// Before anything is armed in this process.
TEST(FaultPointsTest, APointThatIsOffDoesNothing) {
  for (const FaultPointInfo& info : FaultPoints()) {
    EXPECT_TRUE(AtFaultPoint(info.point).ok());
    EXPECT_FALSE(IsMutant(info.point));
  }
}

TEST(FaultPointsTest, WhatCannotBeIsRefused) {
  const auto problem = [](absl::string_view text) {
    const auto fault = ParseFault(text);
    EXPECT_FALSE(fault.ok()) << text;
    return std::string(fault.status().message());
  };
  EXPECT_THAT(problem("push.recieved:1:exit"),
              AllOf(HasSubstr("no fault point \"push.recieved\""),
                    HasSubstr("push.received (ps): "),
                    HasSubstr("record.write (scheduler): ")));
  EXPECT_THAT(problem("push.received"), HasSubstr("NAME:COUNT:ACTION"));
  EXPECT_THAT(problem("push.received:0:exit"), HasSubstr("COUNT"));
  EXPECT_THAT(problem("push.received:x:exit"), HasSubstr("COUNT"));
  EXPECT_THAT(problem("push.received:1:explode"), HasSubstr("ACTION is exit"));
  EXPECT_THAT(problem("push.received:1:exit:3"), HasSubstr("only hang"));
  EXPECT_THAT(problem("push.received:1:hang"), HasSubstr("hang:SECONDS"));
  EXPECT_THAT(problem("push.received:1:hang:0"), HasSubstr("hang:SECONDS"));
  EXPECT_THAT(problem("push.received:1:hang:nan"), HasSubstr("hang:SECONDS"));
  EXPECT_THAT(problem("push.received:1:hang:3601"), HasSubstr("hang:SECONDS"));
  EXPECT_THAT(problem("push.received:1:slow"), HasSubstr("slow:SECONDS"));
  EXPECT_THAT(problem("push.received:1:mutate"), HasSubstr("that are bugs"));
  EXPECT_THAT(problem("push.skip_deduplication:1:exit"), HasSubstr("a bug"));
}

TEST(FaultPointsTest, AnErrorStrikesOnceAtItsTime) {
  Arm("cut.begin:2:error");
  EXPECT_TRUE(AtFaultPoint(FaultPoint::kCutBegin).ok());
  const absl::Status error = AtFaultPoint(FaultPoint::kCutBegin);
  EXPECT_EQ(error.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(error.message()), HasSubstr("fault point cut.begin"));
  EXPECT_TRUE(AtFaultPoint(FaultPoint::kCutBegin).ok());
  EXPECT_TRUE(AtFaultPoint(FaultPoint::kCutEnd).ok());
}

TEST(FaultPointsTest, ABugStays) {
  Arm("push.skip_deduplication:2:mutate");
  EXPECT_FALSE(IsMutant(FaultPoint::kPushSkipDeduplication));
  EXPECT_TRUE(IsMutant(FaultPoint::kPushSkipDeduplication));
  EXPECT_TRUE(IsMutant(FaultPoint::kPushSkipDeduplication));
  EXPECT_FALSE(IsMutant(FaultPoint::kCheckpointForgetSlots));
}

TEST(FaultPointsTest, AHangTakesItsTimeAndGoesOn) {
  Arm("cut.end:1:hang:0.05");
  const absl::Time began = absl::Now();
  EXPECT_TRUE(AtFaultPoint(FaultPoint::kCutEnd).ok());
  EXPECT_GE(absl::Now() - began, absl::Milliseconds(40));
}

TEST(FaultPointsTest, ASlowPointTakesItsTimeFromThenOn) {
  Arm("state.take_back:2:slow:3600");
  EXPECT_TRUE(AtFaultPoint(FaultPoint::kStateTakeBack).ok());
  Arm("step.begin:1:slow:0.05");
  for (int i = 0; i < 2; ++i) {
    const absl::Time began = absl::Now();
    EXPECT_TRUE(AtFaultPoint(FaultPoint::kStepBegin).ok());
    EXPECT_GE(absl::Now() - began, absl::Milliseconds(40));
  }
}

TEST(FaultPointsDeathTest, AnExitIsThatOfKill) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        Arm("record.write:1:exit");
        AtFaultPoint(FaultPoint::kRecordWrite).IgnoreError();
      },
      testing::KilledBySignal(SIGKILL),
      "fault point record.write reached for the 1. time: exit");
}

}  // namespace
}  // namespace syncline
