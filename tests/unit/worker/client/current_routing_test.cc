// Goal: a rank goes to a later routing only when all its ps are there, and a
// wait for one that never comes ends and names it. Method: fake ps that answer
// GetRouting as they are told.

#include "worker/client/current_routing.h"

#include <atomic>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/wire/routing_version.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/assignment_builder.h"
#include "tests/testing/fakes/fake_ps.h"
#include "tests/testing/status_matchers.h"

namespace syncline::worker {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

absl::Status RefusalAt(uint64_t version) {
  return WithRoutingVersion(absl::AbortedError("elsewhere"), version);
}

// A job of one tensor on two ps, of which each says what `routing` of it is.
class CurrentRoutingTest : public ::testing::Test {
 protected:
  CurrentRoutingTest() {
    assignment_ = AssignmentBuilder({}, "j")
                      .Parameter("w", {4096})
                      .Workers(1)
                      .PsAt(ps_[0].address())
                      .PsAt(ps_[1].address())
                      .Build();
    caller_.set_job_id("j");
    SetRouting(1, {0, 1});
  }
  // Of all ps that are said to be there.
  void SetRouting(uint64_t version, std::vector<uint32_t> shard_ps) {
    GetRoutingResponse response;
    response.mutable_routing()->set_version(version);
    response.mutable_routing()->mutable_shard_ps()->Add(shard_ps.begin(),
                                                        shard_ps.end());
    *response.mutable_ps() = assignment_.ps();
    MutexLock lock(&mu_);
    response_ = response;
  }
  std::unique_ptr<CurrentRouting> Create(
      absl::Duration patience = absl::Seconds(20)) {
    auto routing = CurrentRouting::Create(assignment_, caller_, patience);
    EXPECT_OK(routing.status());
    return *std::move(routing);
  }
  FakePs::Answer Answer(int ps) {
    MutexLock lock(&mu_);
    if (left_ == ps) {
      return {.status = {grpc::StatusCode::FAILED_PRECONDITION,
                         "job j is not open on this ps"}};
    }
    if (behind_ == ps) {
      return {.status = {grpc::StatusCode::UNAVAILABLE, "opens its shards"}};
    }
    return {.response = response_.SerializeAsString()};
  }

  std::atomic<int> behind_ = -1;  // this ps is not there yet
  std::atomic<int> left_ = -1;    // this one has the job no more
  Mutex mu_;
  GetRoutingResponse response_;
  FakePs ps_[2] = {FakePs([this](const FakePs::Call&) { return Answer(0); }),
                   FakePs([this](const FakePs::Call&) { return Answer(1); })};
  JobAssignment assignment_;
  Caller caller_;
};

TEST_F(CurrentRoutingTest, BeginsWithTheAssignments) {
  const auto routing = Create();
  const auto job = routing->job();
  EXPECT_EQ(job->table.version(), 1u);
  ASSERT_EQ(job->Peers().size(), 2u);
  EXPECT_EQ(job->Peers()[1].name, "ps:1");
  EXPECT_EQ(job->Peers()[1].address, ps_[1].address());
  EXPECT_EQ(routing->caller().routing_version(), 1u);
  EXPECT_EQ(routing->Follow(absl::AbortedError("of its own")),
            absl::AbortedError("of its own"))
      << "no routing is why";
}

TEST_F(CurrentRoutingTest, GoesThereWhenAllPsAre) {
  const auto routing = Create();
  SetRouting(3, {1, 1, 0});
  behind_ = 1;
  absl::Status followed = absl::UnknownError("not yet");
  std::thread follower([&] { followed = routing->Follow(RefusalAt(2)); });
  ps_[1].calls().Await(3);
  behind_ = -1;
  follower.join();
  ASSERT_OK(followed);
  const auto job = routing->job();
  EXPECT_EQ(job->table.version(), 3u);
  ASSERT_EQ(job->shards.size(), 3u);
  EXPECT_EQ(job->Peers()[0].address, ps_[1].address());
  EXPECT_EQ(routing->caller().routing_version(), 3u);
  EXPECT_OK(routing->Follow(RefusalAt(3)));
}

// Which of them has the lower shard is chance.
TEST_F(CurrentRoutingTest, APsThatHasLeftTheJobKeepsNobodyFromIt) {
  for (const int left : {0, 1}) {
    const auto stays = static_cast<uint32_t>(1 - left);
    const auto routing = Create();
    SetRouting(2, {stays, stays});
    left_ = left;
    SCOPED_TRACE(absl::StrCat("ps:", left, " has left"));
    ASSERT_OK(routing->Follow(RefusalAt(2)));
    const auto job = routing->job();
    EXPECT_EQ(job->table.version(), 2u);
    EXPECT_EQ(job->Peers()[0].address, ps_[stays].address());
    EXPECT_EQ(job->Peers()[1].address, ps_[stays].address());
  }
}

TEST_F(CurrentRoutingTest, OneThatHasLeftIsNoReasonNotToWaitForAnother) {
  const auto routing = Create();
  SetRouting(2, {1, 1});
  left_ = 0;
  behind_ = 1;
  absl::Status followed = absl::UnknownError("not yet");
  std::thread follower([&] { followed = routing->Follow(RefusalAt(2)); });
  ps_[1].calls().Await(3);
  behind_ = -1;
  follower.join();
  ASSERT_OK(followed);
  EXPECT_EQ(routing->job()->table.version(), 2u);
}

TEST_F(CurrentRoutingTest, ARefusalCountsWhereNobodyBringsAnotherRouting) {
  const auto routing = Create();
  left_ = 1;
  const absl::Status followed = routing->Follow(RefusalAt(1));
  EXPECT_EQ(followed.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(followed.message()),
              AllOf(HasSubstr(absl::StrCat("ps:1 at ", ps_[1].address())),
                    HasSubstr("is not open on this ps")));
}

TEST_F(CurrentRoutingTest, AWaitThatIsInVainNamesThePs) {
  const auto routing = Create(absl::Milliseconds(300));
  const absl::Status followed = routing->Follow(RefusalAt(2));
  EXPECT_EQ(followed.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(followed.message()),
              AllOf(HasSubstr(absl::StrCat("ps:0 at ", ps_[0].address())),
                    HasSubstr("job j"), HasSubstr("GetRouting"),
                    HasSubstr("is at routing version 1 still")));
  EXPECT_EQ(routing->job()->table.version(), 1u);
}

TEST_F(CurrentRoutingTest, WhatIsNoRoutingOfTheJobIsRefused) {
  const auto routing = Create();
  SetRouting(2, {0, 7});
  const absl::Status followed = routing->Follow(RefusalAt(2));
  EXPECT_EQ(followed.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(followed.message()),
              AllOf(HasSubstr(ps_[0].address()),
                    HasSubstr("routing.shard_ps[1] is 7")));
}

TEST_F(CurrentRoutingTest, ACancelEndsTheWait) {
  const auto routing = Create(absl::Minutes(10));
  std::thread canceller([&] {
    ps_[0].calls().Await(2);
    routing->Cancel(absl::CancelledError("stopped"));
  });
  EXPECT_EQ(routing->Follow(RefusalAt(2)), absl::CancelledError("stopped"));
  canceller.join();
}

}  // namespace
}  // namespace syncline::worker
