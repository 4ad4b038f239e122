// Goal: ps whose clocks end without some workers apply the same workers'
// gradients on all shards, and say to each worker what became of its own.
// Method: real ps with gRPC between them, and a plain client for each worker.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/rpc/grpc_channel.h"
#include "common/rpc/grpc_status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/quorum.grpc.pb.h"
#include "server/shard/shard_exporter.h"
#include "tests/testing/assignment_builder.h"
#include "tests/testing/fakes/shard_states.h"
#include "tests/testing/ps_fixture.h"
#include "tests/testing/status_matchers.h"

namespace syncline {
namespace {

using testing::Each;
using testing::HasSubstr;

constexpr size_t kElements = 4008;

PsFixture::Options Cluster(const std::function<void(JobSpec*)>& edit) {
  PsFixture::Options options;
  options.ps_count = 2;
  options.workers = 3;
  options.spec = [edit](JobSpec* spec) {
    spec->mutable_resources()->set_workers(3);
    spec->mutable_resources()->set_ps(2);
    spec->mutable_consistency()->set_mode(ConsistencySpec::SYNC_WITH_BACKUPS);
    spec->mutable_consistency()->set_needed(2);
    edit(spec);
  };
  return options;
}

class PsQuorumTest : public testing::Test {
 protected:
  void Open(const std::function<void(JobSpec*)>& edit = [](JobSpec*) {}) {
    fixture_.emplace(Cluster(edit));
    for (uint32_t rank = 0; rank < 3; ++rank) {
      workers_.emplace_back(&*fixture_, rank);
    }
    ASSERT_OK(workers_[0].Init(Flat(kElements, 100), 10));
  }
  // Of 4 samples, each with the gradient `g`.
  absl::Status Push(uint32_t rank, int64_t clock, float g) {
    return workers_[rank].Push(clock, Flat(kElements, 4 * g), 4);
  }
  PushResponse::Outcome OutcomeOf(uint32_t rank, uint32_t ps, int64_t clock) {
    const PushRequest request =
        workers_[rank].MakePush(ps, clock, Flat(kElements, 1e6f), 4);
    PushResponse response;
    EXPECT_OK(FromGrpcStatus(fixture_->stub(ps).Push(
        MakeContext(MonotonicNow() + absl::Seconds(20)).get(), request,
        &response)));
    return response.outcome();
  }
  PullResponseHeader Answer(uint32_t rank, uint32_t ps, int64_t clock) {
    PullResponse response;
    EXPECT_OK(FromGrpcStatus(fixture_->stub(ps).Pull(
        MakeContext(MonotonicNow() + absl::Seconds(20)).get(),
        workers_[rank].MakePull(ps, clock), &response)));
    return response.header();
  }
  absl::Status FixClock(uint32_t ps, const std::string& secret) {
    FixClockRequest request;
    request.set_job_id(fixture_->assignment().job_id());
    request.set_shard(1);
    request.set_incarnation(
        fixture_->assignment().ps(1).member().incarnation());
    request.set_routing_version(1);
    request.set_attempt(kTestPass.attempt);
    request.set_job_secret(secret);
    FixClockResponse response;
    const auto stub =
        Quorum::NewStub(MakeChannel(fixture_->address(ps), ExpectedPeer::kPs));
    return FromGrpcStatus(
        stub->FixClock(MakeContext(MonotonicNow() + absl::Seconds(20)).get(),
                       request, &response));
  }

  std::optional<PsFixture> fixture_;
  std::vector<PlainWorker> workers_;
};

TEST_F(PsQuorumTest, TheFirstWorkersCountOnAllShards) {
  Open();
  ASSERT_OK(Push(0, 0, 1));
  // On one shard alone it does not count.
  ASSERT_EQ(OutcomeOf(2, 0, 0), PushResponse::ACCEPTED);
  ASSERT_OK(Push(1, 0, 3));
  for (uint32_t rank : {0, 1}) {
    ASSERT_OK_AND_ASSIGN(const Flat values, workers_[rank].Pull(1));
    EXPECT_THAT(values, Each(98.0f)) << "the mean of 1 and 3 was applied";
  }
  EXPECT_EQ(OutcomeOf(2, 0, 0), PushResponse::DROPPED);
  EXPECT_EQ(OutcomeOf(2, 1, 0), PushResponse::DROPPED);
  EXPECT_EQ(OutcomeOf(1, 1, 0), PushResponse::ACCEPTED) << "a repeat";
  const PullResponseHeader behind = Answer(2, 1, 1);
  EXPECT_EQ(behind.open_clock(), 1);
  EXPECT_EQ(behind.min_clock(), 0);
  EXPECT_EQ(Answer(1, 1, 1).min_clock(), 1);
  // It goes on at the open clock, where another one is left behind.
  ASSERT_OK(Push(2, 1, 5));
  ASSERT_OK(Push(0, 1, 1));
  ASSERT_OK_AND_ASSIGN(const Flat values, workers_[1].Pull(2));
  EXPECT_THAT(values, Each(95.0f));

  ShardStatusRequest request;
  ShardStatus status;
  ASSERT_OK(FromGrpcStatus(fixture_->stub(0).GetShardStatus(
      MakeContext(MonotonicNow() + absl::Seconds(20)).get(), request,
      &status)));
  EXPECT_EQ(status.jobs(0).workers(2).left_behind_clocks(), 1u);
  EXPECT_EQ(status.jobs(0).workers(2).late_samples(), 4u);
  EXPECT_EQ(status.jobs(0).workers(1).left_behind_clocks(), 1u);
  EXPECT_EQ(status.jobs(0).fold_bytes(), 0u) << "nothing stays buffered";
}

// They go on from the state of the first ones at a cut, in the same attempt.
TEST_F(PsQuorumTest, OtherPsKnowWhoWasLeftBehind) {
  Open();
  ASSERT_OK(workers_[0].BeginCut(5, {1, 1, 1}));
  ASSERT_OK(Push(0, 0, 1));
  ASSERT_OK(Push(1, 0, 3));
  ASSERT_OK(workers_[0].PullCut(5).status());
  PsFixture::Options others = Cluster([](JobSpec*) {});
  for (uint32_t ps = 0; ps < 2; ++ps) {
    MemoryStateSink sink;
    ASSERT_OK(fixture_->server(ps).ExportState("j-0001", ps, 5, {}, &sink));
    others.states.push_back(std::move(sink.bytes));
  }
  fixture_.emplace(others);
  EXPECT_EQ(OutcomeOf(2, 0, 0), PushResponse::DROPPED);
  EXPECT_EQ(OutcomeOf(2, 1, 0), PushResponse::DROPPED);
  EXPECT_EQ(OutcomeOf(1, 0, 0), PushResponse::ACCEPTED) << "a repeat";
  for (uint32_t ps = 0; ps < 2; ++ps) {
    EXPECT_EQ(Answer(2, ps, 1).min_clock(), 0) << "it was left behind";
    EXPECT_EQ(Answer(1, ps, 1).min_clock(), 1);
    EXPECT_EQ(Answer(2, ps, 1).open_clock(), 1);
  }
}

TEST_F(PsQuorumTest, TheNormIsOfTheSameWorkersEverywhere) {
  Open([](JobSpec* spec) { spec->mutable_optimizer()->set_clip_norm(1); });
  // The dropped gradient would make every step tiny.
  ASSERT_EQ(OutcomeOf(2, 1, 0), PushResponse::ACCEPTED);
  ASSERT_OK(Push(0, 0, 1));
  ASSERT_OK(Push(1, 0, 3));
  ASSERT_OK_AND_ASSIGN(const Flat values, workers_[0].Pull(1));
  double squared = 0;
  for (const float value : values) squared += (100 - value) * (100 - value);
  EXPECT_NEAR(squared, 1, 1e-3);
  EXPECT_THAT(values, Each(values[0]));
}

TEST_F(PsQuorumTest, WithATimeoutAllAreWaitedForUntilThen) {
  Open([](JobSpec* spec) {
    spec->mutable_consistency()->set_mode(ConsistencySpec::SYNC_WITH_TIMEOUT);
    spec->mutable_consistency()->set_timeout_seconds(0.3);
  });
  ASSERT_OK(Push(0, 0, 1));
  ASSERT_OK(Push(1, 0, 3));
  ASSERT_OK_AND_ASSIGN(const Flat two, workers_[0].Pull(1));
  EXPECT_THAT(two, Each(98.0f));
  EXPECT_EQ(OutcomeOf(2, 0, 0), PushResponse::DROPPED);
}

TEST_F(PsQuorumTest, BeforeTheTimeoutTheLastWorkerIsWaitedFor) {
  Open([](JobSpec* spec) {
    spec->mutable_consistency()->set_mode(ConsistencySpec::SYNC_WITH_TIMEOUT);
    spec->mutable_consistency()->set_timeout_seconds(20);
  });
  ASSERT_OK(Push(0, 0, 1));
  ASSERT_OK(Push(1, 0, 3));
  ASSERT_OK(Push(2, 0, 5));
  ASSERT_OK_AND_ASSIGN(const Flat three, workers_[0].Pull(1));
  EXPECT_THAT(three, Each(97.0f)) << "the mean of 1, 3 and 5 was applied";
  EXPECT_EQ(OutcomeOf(2, 0, 0), PushResponse::ACCEPTED) << "a repeat";
}

TEST_F(PsQuorumTest, OtherCallersFixNothing) {
  Open();
  EXPECT_TRUE(absl::IsPermissionDenied(FixClock(0, "another secret")));
  EXPECT_TRUE(absl::IsInvalidArgument([&] {
    PushRequest request = workers_[0].MakePush(0, 0, Flat(kElements, 1), 4);
    request.mutable_header()->set_close_until(3);
    return workers_[0].Send(0, request);
  }()));
}

TEST_F(PsQuorumTest, WhereAllAreWaitedForNoSetIsFixed) {
  Open([](JobSpec* spec) { spec->clear_consistency(); });
  const absl::Status status = FixClock(0, kTestPass.secret);
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("waits for all workers"));
}

}  // namespace
}  // namespace syncline
