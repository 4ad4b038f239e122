// Goal: every call of Jobs passes the gate, and every method has a rule.
// Method: the descriptor of Jobs, against both tables. scheduler_tenants_test
// makes the calls.

#include "scheduler/service/user_gate.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/security/user_tokens.h"
#include "google/protobuf/descriptor.h"
#include "gtest/gtest.h"
#include "proto/scheduler.pb.h"

namespace syncline::scheduler {
namespace {

TEST(UserGateTest, EveryMethodIsGated) {
  const auto* jobs =
      SubmitRequest::descriptor()->file()->FindServiceByName("Jobs");
  ASSERT_NE(jobs, nullptr);
  for (int i = 0; i < jobs->method_count(); ++i) {
    const auto* method = jobs->method(i);
    const std::string path = absl::StrCat("/syncline.Jobs/", method->name());
    const bool names_job =
        method->input_type()->FindFieldByName("job_id") != nullptr;
    EXPECT_EQ(FindJobIdOf(path) != nullptr, names_job)
        << path << ": kGatedMethods in user_gate.cc";
    EXPECT_TRUE(GateChecksTokens(path))
        << path << ": kGatedMethods in user_gate.cc";
    const MethodRule rule = RuleOf(path);
    EXPECT_EQ(rule.scope == MethodScope::kJob, names_job)
        << path << ": kMethods in user_tokens.cc";
  }
}

TEST(UserGateTest, TheNameOfTheJobIsReached) {
  CancelRequest request;
  request.set_job_id("j-0001");
  std::string* const job_id =
      FindJobIdOf("/syncline.Jobs/Cancel")(static_cast<void*>(&request));
  EXPECT_EQ(*job_id, "j-0001");
  *job_id = "other";
  EXPECT_EQ(request.job_id(), "other");
}

// A refused request keeps no memory, however large it was.
TEST(UserGateTest, ARefusedRequestHoldsNothing) {
  CancelRequest request;
  request.set_job_id("j-0001");
  request.set_reason(std::string(4 << 20, 'r'));
  FindEmptyRequest("/syncline.Jobs/Cancel")(static_cast<void*>(&request));
  EXPECT_EQ(request.job_id(), kNoJob);
  EXPECT_EQ(request.reason(), "");
  EXPECT_LT(request.SpaceUsedLong(), 1000u);
  SetMemberUseRequest use;
  use.set_reason(std::string(4 << 20, 'r'));
  FindEmptyRequest("/syncline.Jobs/SetMemberUse")(static_cast<void*>(&use));
  EXPECT_EQ(use.reason(), "");
  EXPECT_LT(use.SpaceUsedLong(), 1000u);
}

// Its calls are checked where gRPC takes them.
TEST(UserGateTest, AMethodThatTheGateDoesNotKnowIsNoneOfItsMethods) {
  EXPECT_FALSE(GateChecksTokens("/syncline.Jobs/SomethingLater"));
  EXPECT_EQ(FindEmptyRequest("/syncline.Jobs/SomethingLater"), nullptr);
}

TEST(UserGateTest, AMethodWithoutARuleIsForTheAdminsOfAll) {
  const MethodRule rule = RuleOf("/syncline.Jobs/SomethingLater");
  EXPECT_EQ(rule.least, UserRole::kAdmin);
  EXPECT_EQ(rule.scope, MethodScope::kCluster);
}

}  // namespace
}  // namespace syncline::scheduler
