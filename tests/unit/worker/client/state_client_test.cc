// Goal: a shard that has no room for a call is asked again, for as long as the
// call may take, and every other refusal ends the call. Method: a fake ps that
// refuses as it is told.

#include "worker/client/state_client.h"

#include <atomic>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/busy.h"
#include "common/rpc/grpc_status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/assignment_builder.h"
#include "tests/testing/fakes/fake_ps.h"
#include "tests/testing/status_matchers.h"
#include "worker/client/current_routing.h"

namespace syncline::worker {
namespace {

using ::testing::HasSubstr;

// Of a job of one tensor on one ps, which refuses the first calls.
class StateClientTest : public ::testing::Test {
 protected:
  std::unique_ptr<StateClient> Create(absl::Duration timeout) {
    Caller caller;
    caller.set_job_id("j");
    auto routing = CurrentRouting::Create(AssignmentBuilder({}, "j")
                                              .Parameter("w", {16})
                                              .Workers(1)
                                              .PsAt(ps_.address())
                                              .Build(),
                                          caller, absl::Seconds(20));
    EXPECT_OK(routing.status());
    return std::make_unique<StateClient>(StateClient::Options{
        .job_id = "j", .routing = *std::move(routing), .timeout = timeout});
  }

  std::atomic<int> refusals_{0};
  absl::Status refusal_;
  std::atomic<int> calls_{0};
  FakePs ps_{[this](const FakePs::Call& call) -> FakePs::Answer {
    EXPECT_EQ(call.method, "GetProposal");
    ++calls_;
    if (refusals_-- > 0) return {.status = ToGrpcStatus(refusal_)};
    return {};
  }};
};

TEST_F(StateClientTest, AShardWithoutRoomIsAskedAgain) {
  refusal_ = BusyError("no room for 40 more");
  refusals_ = 3;
  const auto proposal = Create(absl::Seconds(60))->GetProposal(5);
  ASSERT_OK(proposal.status());
  EXPECT_FALSE(proposal->has_value());
  EXPECT_EQ(calls_, 4);
}

TEST_F(StateClientTest, AShardThatStaysWithoutRoomIsNamed) {
  refusal_ = BusyError("no room for 40 more");
  refusals_ = 1000000;
  const absl::Status failed =
      Create(absl::Milliseconds(300))->GetProposal(5).status();
  EXPECT_FALSE(failed.ok());
  EXPECT_THAT(std::string(failed.message()), HasSubstr("ps:0 at"));
}

TEST_F(StateClientTest, AnotherRefusalEndsTheCall) {
  refusal_ = absl::FailedPreconditionError("cut 7 is not passed yet");
  refusals_ = 1;
  const absl::Status failed =
      Create(absl::Seconds(60))->GetProposal(5).status();
  EXPECT_THAT(std::string(failed.message()), HasSubstr("not passed yet"));
  EXPECT_EQ(calls_, 1);
}

}  // namespace
}  // namespace syncline::worker
