// Goal: a call that fails is repeated with the same bytes, a wait ends when
// nothing comes forward, and its error names the shard and the reason. Method:
// shards on the fake ps that refuse, stall, go away or answer late.

#include <thread>

#include "absl/synchronization/notification.h"
#include "common/base/busy.h"
#include "common/base/mutex.h"
#include "common/rpc/grpc_status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/component/ps_client_fixture.h"
#include "worker/client/ps_client.h"

namespace syncline {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST_F(PsClientTest, RepeatsWithTheSameBytes) {
  SetUpCluster({3000, 70}, 1);
  ASSERT_EQ(client_->Init(kClocks), absl::OkStatus());
  const size_t before = shards_[0]->seen().size();
  shards_[0]->FailNext({{grpc::StatusCode::UNAVAILABLE, "draining"},
                        {grpc::StatusCode::RESOURCE_EXHAUSTED, "full"}});
  ASSERT_EQ(RunStep(0), absl::OkStatus());
  const std::vector<std::string> seen = shards_[0]->seen();
  ASSERT_THAT(seen, SizeIs(before + 3));
  EXPECT_EQ(seen[before], seen[before + 1]);
  EXPECT_EQ(seen[before], seen[before + 2]);
}

TEST_F(PsClientTest, ARefusalEndsTheStepAndNamesWhoAndWhen) {
  SetUpCluster({3000, 70}, 2);
  ASSERT_EQ(client_->Init(kClocks), absl::OkStatus());
  shards_[1]->FailNext(
      {{grpc::StatusCode::FAILED_PRECONDITION, "incarnation was replaced"}});
  const absl::Status status = RunStep(5);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("ps:1"), HasSubstr(shards_[1]->address()),
                    HasSubstr("j-7"), HasSubstr("clock 5"),
                    HasSubstr("incarnation was replaced")));
  EXPECT_EQ(RunStep(6), status) << "the client stays closed";
}

TEST_F(PsClientTest, APsThatIsGoneFailsTheStepAfterThePatience) {
  worker::PsClient::Options options;
  options.step_timeout = absl::Seconds(2);
  SetUpCluster({3000, 70}, 2, options);
  ASSERT_EQ(client_->Init(kClocks), absl::OkStatus());
  shards_[1]->Shutdown();
  const absl::Status status = RunStep(0);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("ps:1"), HasSubstr(shards_[1]->address())));
}

TEST_F(PsClientTest, APsThatIsOutOfReachIsToldBeforeThePatienceEnds) {
  worker::PsClient::Options options;
  options.step_timeout = absl::Seconds(5);
  Mutex mu;
  std::vector<std::pair<uint32_t, absl::Duration>> told;
  options.on_unreachable = [&](uint32_t shard, absl::Duration out_of_reach,
                               const absl::Status& error) {
    MutexLock lock(&mu);
    told.emplace_back(shard, out_of_reach);
    EXPECT_EQ(error.code(), absl::StatusCode::kUnavailable);
  };
  SetUpCluster({3000, 70}, 2, options);
  ASSERT_EQ(client_->Init(kClocks), absl::OkStatus());
  shards_[1]->Shutdown();
  EXPECT_EQ(RunStep(0).code(), absl::StatusCode::kUnavailable);
  client_.reset();  // nothing calls on_unreachable any more
  MutexLock lock(&mu);
  ASSERT_THAT(told, ::testing::Not(IsEmpty()));
  for (const auto& [shard, out_of_reach] : told) {
    EXPECT_EQ(shard, 1u);
    EXPECT_GE(out_of_reach, options.step_timeout / 16);
  }
}

// A network that swallows everything breaks no call before the keep-alive
// does, which takes longer than this patience.
TEST_F(PsClientTest, APsThatSaysNothingIsToldBeforeThePatienceEnds) {
  worker::PsClient::Options options;
  options.step_timeout = absl::Seconds(4);
  Mutex mu;
  std::vector<std::pair<uint32_t, absl::Duration>> told;
  options.on_unreachable = [&](uint32_t shard, absl::Duration out_of_reach,
                               const absl::Status&) {
    MutexLock lock(&mu);
    told.emplace_back(shard, out_of_reach);
  };
  SetUpCluster({3000, 70}, 2, options, /*relayed=*/1);
  ASSERT_EQ(client_->Init(kClocks), absl::OkStatus());
  ASSERT_EQ(RunStep(0), absl::OkStatus());
  relay_->Stall(true);
  EXPECT_EQ(RunStep(1).code(), absl::StatusCode::kDeadlineExceeded);
  client_.reset();  // nothing calls on_unreachable any more
  MutexLock lock(&mu);
  ASSERT_THAT(told, ::testing::Not(IsEmpty()));
  EXPECT_EQ(told[0].first, 1u);
  EXPECT_LT(told[0].second, options.step_timeout);
}

TEST_F(PsClientTest, WaitsForOthersAsLongAsTheyMove) {
  worker::PsClient::Options options;
  options.step_timeout = absl::Seconds(2);
  SetUpCluster({70}, 1, options);
  ASSERT_EQ(client_->Init(kClocks), absl::OkStatus());
  shards_[0]->FailUntilProbed(3, {grpc::StatusCode::DEADLINE_EXCEEDED,
                                  "waiting for worker:1, clock 3"});
  EXPECT_EQ(RunStep(0), absl::OkStatus());
}

TEST_F(PsClientTest, GivesUpWhenNobodyMovesAndRepeatsTheShardsReason) {
  worker::PsClient::Options options;
  options.step_timeout = absl::Seconds(4);
  SetUpCluster({70, 50'000}, 1, options);
  ASSERT_EQ(client_->Init(kClocks), absl::OkStatus());
  shards_[0]->HoldPullsUntilClosed();
  client_->BeginStep({.clock = 0, .sample_count = 3});
  client_->OnGradientReady(0);  // the other tensor never comes
  client_->EndBackward({});
  const absl::Status status = client_->Wait();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("ps:0"), HasSubstr("clock 0"),
                    HasSubstr("worker:9 has not come")));
}

// The parked calls that hold the room wait in vain: the job may be run again.
TEST_F(PsClientTest, ABusyShardIsGivenUpAsAWait) {
  worker::PsClient::Options options;
  options.step_timeout = absl::Seconds(2);
  SetUpCluster({70}, 1, options);
  ASSERT_EQ(client_->Init(kClocks), absl::OkStatus());
  shards_[0]->FailNext(std::vector<grpc::Status>(
      1000, ToGrpcStatus(BusyError("parked calls hold 512 bytes"))));
  const absl::Status status = RunStep(0);
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(
      std::string(status.message()),
      AllOf(HasSubstr("ps:0"), HasSubstr("parked calls hold 512 bytes")));
}

// A table that is full stays so.
TEST_F(PsClientTest, AFullShardIsGivenUpAsFull) {
  worker::PsClient::Options options;
  options.step_timeout = absl::Seconds(2);
  SetUpCluster({70}, 1, options);
  ASSERT_EQ(client_->Init(kClocks), absl::OkStatus());
  shards_[0]->FailNext(std::vector<grpc::Status>(
      1000, ToGrpcStatus(absl::ResourceExhaustedError("disk full"))));
  const absl::Status status = RunStep(0);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("disk full"));
}

TEST_F(PsClientTest, CancelEndsAWaitAtOnce) {
  SetUpCluster({70, 50'000}, 1);
  ASSERT_EQ(client_->Init(kClocks), absl::OkStatus());
  shards_[0]->HoldPullsUntilClosed();
  client_->BeginStep({.clock = 0, .sample_count = 3});
  client_->OnGradientReady(0);
  client_->EndBackward({});
  std::thread canceller(
      [&] { client_->Cancel(absl::CancelledError("the job was stopped")); });
  EXPECT_EQ(client_->Wait(), absl::CancelledError("the job was stopped"));
  canceller.join();
}

TEST_F(PsClientTest, LetsGoOfTheMemoryAlsoAfterACancelledStep) {
  SetUpCluster({70, 50'000}, 1);
  absl::Notification gone;
  memory_ = std::shared_ptr<Memory>(memory_.get(),
                                    [owner = memory_, &gone](Memory*) mutable {
                                      owner.reset();
                                      gone.Notify();
                                    });
  worker::PsClient::Options options;
  options.job_id = "j-7";
  options.ps = {{"ps:0", shards_[0]->address()}};
  worker::DenseTensors tensors;
  for (auto& v : memory_->values) tensors.values.push_back(absl::MakeSpan(v));
  for (auto& g : memory_->gradients) tensors.gradients.push_back(g);
  tensors.owner = memory_;
  client_ =
      std::make_unique<worker::PsClient>(options, *map_, std::move(tensors));
  ASSERT_EQ(client_->Init(kClocks), absl::OkStatus());
  shards_[0]->HoldPullsUntilClosed();
  client_->BeginStep({.clock = 0, .sample_count = 3});
  client_->OnGradientReady(1);
  client_->EndBackward({});
  client_->Cancel(absl::CancelledError("stopped"));
  client_.reset();
  memory_.reset();
  EXPECT_TRUE(gone.WaitForNotificationWithTimeout(absl::Seconds(30)));
}

}  // namespace
}  // namespace syncline
