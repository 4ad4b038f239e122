// Goal: a task keeps its use until people say otherwise. Method: what people
// say, one after the other.

#include "scheduler/core/cluster/member_uses.h"

#include <string>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline::scheduler {
namespace {

SetMemberUseRequest UseOf(uint32_t index, SetMemberUseRequest::Use use,
                          const std::string& reason = "") {
  SetMemberUseRequest request;
  request.mutable_task()->set_type(PS);
  request.mutable_task()->set_index(index);
  request.set_use(use);
  request.set_reason(reason);
  return request;
}

TEST(MemberUsesTest, ATaskKeepsItsUse) {
  MemberUses uses;
  const Task ps = UseOf(1, SetMemberUseRequest::CORDON).task();
  EXPECT_TRUE(uses.TakesJobs(ps));
  uses.Set(UseOf(1, SetMemberUseRequest::CORDON));
  EXPECT_FALSE(uses.TakesJobs(ps));
  EXPECT_FALSE(uses.IsDrained(ps));
  Task worker = ps;
  worker.set_type(WORKER);
  EXPECT_TRUE(uses.TakesJobs(worker));
  uses.Set(UseOf(1, SetMemberUseRequest::DRAIN, "new kernel"));
  EXPECT_TRUE(uses.IsDrained(ps));
  EXPECT_EQ(UseText(*uses.Find(ps)), "ps 1 is drained (new kernel)");
  uses.Set(UseOf(1, SetMemberUseRequest::SCHEDULE));
  EXPECT_TRUE(uses.TakesJobs(ps));
}

TEST(MemberUsesTest, WhatIsSaidIsBounded) {
  MemberUses uses;
  EXPECT_EQ(uses.Check(UseOf(0, SetMemberUseRequest::USE_UNSPECIFIED)).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(
      uses.Check(UseOf(0, static_cast<SetMemberUseRequest::Use>(9))).message(),
      "use: 9 is unknown; expected SCHEDULE, CORDON or DRAIN");
  EXPECT_TRUE(
      uses.Check(UseOf(0, SetMemberUseRequest::CORDON, std::string(256, 'x')))
          .ok());
  EXPECT_FALSE(
      uses.Check(UseOf(0, SetMemberUseRequest::CORDON, std::string(257, 'x')))
          .ok());
  EXPECT_FALSE(uses.Check(UseOf(0, SetMemberUseRequest::CORDON, "\xff")).ok());
  for (uint32_t i = 0; i < MemberUses::kMax; ++i) {
    uses.Set(UseOf(i, SetMemberUseRequest::CORDON));
  }
  EXPECT_TRUE(uses.Check(UseOf(7, SetMemberUseRequest::DRAIN)).ok());
  EXPECT_EQ(
      uses.Check(UseOf(MemberUses::kMax, SetMemberUseRequest::CORDON)).code(),
      absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace syncline::scheduler
