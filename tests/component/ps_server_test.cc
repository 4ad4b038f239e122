// Goal: a parameter server, over real gRPC, does what the proto promises: each
// mode's arithmetic, exactly-once, parking and cuts. Method: servers in this
// process and a client made of nothing but generated code; integer gradients
// where sums must be exact. The parts beside: ps_server_refusal_test.cc
// (refusals that say why), ps_server_memory_test.cc (limits of memory),
// ps_server_routing_test.cc (changes of the routing).

#include <cmath>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/wire/smallest_cut.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/component/ps_server_fixture.h"
#include "tests/testing/eventually.h"
#include "tests/testing/ps_fixture.h"
#include "tests/testing/status_matchers.h"

namespace syncline {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(PsServerTest, InitialValuesComeBack) {
  PsFixture fixture({.ps_count = 2, .workers = 2});
  PlainWorker chief(&fixture, 0);
  PlainWorker other(&fixture, 1);
  const Flat values = RandomFlat(fixture, 1);
  ASSERT_OK(chief.Init(values));
  ASSERT_OK_AND_ASSIGN(const Flat pulled, other.Pull(0));
  EXPECT_EQ(pulled, values);
  // A repeat is fine and changes nothing.
  ASSERT_OK(chief.Init(RandomFlat(fixture, 2)));
  ASSERT_OK_AND_ASSIGN(const Flat again, other.Pull(0));
  EXPECT_EQ(again, values);
}

TEST(PsServerTest, PullsWaitForInitialisation) {
  PsFixture fixture({.workers = 2});
  std::thread waiting([&] {
    const absl::StatusOr<Flat> pulled = PlainWorker(&fixture, 1).Pull(0);
    EXPECT_OK(pulled);
  });
  EXPECT_TRUE(
      Eventually(kPsTimeout, [&] { return HasParked(&fixture, 1, 0); }));
  EXPECT_OK(PlainWorker(&fixture, 0).Init(Constant(fixture, 1)));
  waiting.join();
}

// Three workers, random gradients of uneven counts; returns the last values.
Flat TrainSync(uint32_t ps_count, std::function<void(JobSpec*)> spec) {
  constexpr uint32_t kWorkers = 3;
  constexpr int64_t kClocks = 8;
  PsFixture fixture(
      {.ps_count = ps_count, .workers = kWorkers, .spec = std::move(spec)});
  EXPECT_OK(PlainWorker(&fixture, 0).Init(RandomFlat(fixture, 99), kClocks));
  std::vector<Flat> last(kWorkers);
  ForEachWorker(kWorkers, [&](uint32_t rank) {
    PlainWorker worker(&fixture, rank);
    for (int64_t clock = 0; clock < kClocks; ++clock) {
      // Worker 2 runs out of data.
      absl::StatusOr<Flat> values =
          rank == 2 && clock >= 5
              ? worker.PushPullNothing(clock)
              : worker.PushPull(clock,
                                RandomFlat(fixture, 1000 * (rank + 1) + clock),
                                8 + rank);
      ASSERT_OK(values);
      last[rank] = *std::move(values);
    }
  });
  EXPECT_EQ(last[0], last[1]);
  EXPECT_EQ(last[0], last[2]);
  return last[0];
}

TEST(PsServerTest, SyncIsTheSerialFoldInRankOrder) {
  const Flat trained = TrainSync(
      1, [](JobSpec* spec) { spec->mutable_learning_rate()->set_base(0.5); });
  const PsFixture fixture({});
  Flat expected = RandomFlat(fixture, 99);
  for (int64_t clock = 0; clock < 8; ++clock) {
    const bool dry = clock >= 5;
    const Flat g0 = RandomFlat(fixture, 1000 + clock);
    const Flat g1 = RandomFlat(fixture, 2000 + clock);
    const Flat g2 = RandomFlat(fixture, 3000 + clock);
    const float scale = static_cast<float>(1.0 / (dry ? 17 : 27));
    for (size_t i = 0; i < expected.size(); ++i) {
      float sum = g0[i] + g1[i];
      if (!dry) sum += g2[i];
      expected[i] -= 0.5f * (sum * scale);
    }
  }
  EXPECT_EQ(trained, expected);
}

TEST(PsServerTest, TheNumberOfShardsDoesNotChangeABit) {
  const auto adam = [](JobSpec* spec) {
    spec->mutable_optimizer()->set_kind(OptimizerSpec::ADAM);
    spec->mutable_optimizer()->set_weight_decay(0.01);
    spec->mutable_learning_rate()->set_base(0.01);
    spec->mutable_learning_rate()->set_schedule(LearningRateSpec::COSINE);
  };
  const Flat one = TrainSync(1, adam);
  EXPECT_EQ(TrainSync(2, adam), one);
  EXPECT_EQ(TrainSync(3, adam), one);
}

TEST(PsServerTest, AGlobalNormDoesNotDependOnTheNumberOfShards) {
  const auto clipped = [](JobSpec* spec) {
    spec->mutable_optimizer()->set_kind(OptimizerSpec::MOMENTUM);
    spec->mutable_optimizer()->set_clip_norm(0.5);
  };
  const Flat one = TrainSync(1, clipped);
  EXPECT_EQ(TrainSync(2, clipped), one);
  EXPECT_EQ(TrainSync(3, clipped), one);
}

TEST(PsServerTest, AClippedNormIsThatOfAllShardsTogether) {
  for (const auto mode : {ConsistencySpec::SYNC, ConsistencySpec::ASYNC}) {
    PsFixture fixture({.ps_count = 2, .spec = [&](JobSpec* spec) {
                         spec->mutable_optimizer()->set_clip_norm(1);
                         spec->mutable_consistency()->set_mode(mode);
                       }});
    PlainWorker worker(&fixture, 0);
    ASSERT_OK(worker.Init(Constant(fixture, 0)));
    // The mean gradient is 3 everywhere: its norm is 3 * sqrt(elements).
    ASSERT_OK_AND_ASSIGN(const Flat values,
                         worker.PushPull(0, Constant(fixture, 12), 4));
    for (const float value : values) {
      ASSERT_NEAR(value, -1 / std::sqrt(4008.0), 1e-6);
    }
  }
}

TEST(PsServerTest, AsyncAddsUpExactly) {
  constexpr uint32_t kWorkers = 3;
  constexpr int64_t kClocks = 20;
  for (const auto mode :
       {ConsistencySpec::ASYNC, ConsistencySpec::BOUNDED_STALENESS}) {
    PsFixture fixture(
        {.ps_count = 2, .workers = kWorkers, .spec = [&](JobSpec* spec) {
           spec->mutable_consistency()->set_mode(mode);
           if (mode == ConsistencySpec::BOUNDED_STALENESS) {
             spec->mutable_consistency()->set_staleness_bound(2);
           }
         }});
    ASSERT_OK(PlainWorker(&fixture, 0).Init(Constant(fixture, 0)));
    ForEachWorker(kWorkers, [&](uint32_t rank) {
      PlainWorker worker(&fixture, rank);
      for (int64_t clock = 0; clock < kClocks; ++clock) {
        // Sent twice: PushPull on two shards pushes, then pushes again.
        const bool last = clock + 1 == kClocks;
        ASSERT_OK(worker.PushPull(
            clock, Constant(fixture, static_cast<float>(4 * (rank + 1))), 4,
            last));
      }
    });
    ASSERT_OK_AND_ASSIGN(const Flat values,
                         PlainWorker(&fixture, 0).Pull(kClocks));
    EXPECT_EQ(values, Constant(fixture, -20.0f * (1 + 2 + 3)));
  }
}

TEST(PsServerTest, AnOverduePullSaysWhoIsMissing) {
  PsFixture fixture({.workers = 2});
  PlainWorker chief(&fixture, 0);
  ASSERT_OK(chief.Init(Constant(fixture, 0)));
  ASSERT_OK(chief.Push(0, Constant(fixture, 1), 1));
  PullRequest pull = chief.MakePull(0, 1);
  pull.mutable_header()->set_wait_seconds(0.01);
  const absl::Status by_header = chief.Send(0, pull);
  EXPECT_EQ(by_header.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(Message(by_header),
              AllOf(HasSubstr(absl::StrCat("job j-0001 on ps:0 at ",
                                           fixture.address(0))),
                    HasSubstr("pull of clock 1 by worker:0 at 10.0.0.0:1"),
                    HasSubstr("missing: worker:1 at 10.0.0.1:1 (clock 0")));
  // The caller's own deadline too: it is answered before it stops listening.
  pull.mutable_header()->set_wait_seconds(100);
  const absl::Status by_grpc = chief.Send(0, pull, absl::Seconds(1));
  EXPECT_EQ(by_grpc.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(Message(by_grpc), HasSubstr("missing: worker:1"));
}

TEST(PsServerTest, ClosingAJobEndsItsParkedCalls) {
  PsFixture fixture({.workers = 2});
  PlainWorker chief(&fixture, 0);
  ASSERT_OK(chief.Init(Constant(fixture, 0)));
  absl::Status pulled;
  std::thread waiting([&] { pulled = chief.Send(0, chief.MakePull(0, 1)); });
  ASSERT_TRUE(
      Eventually(kPsTimeout, [&] { return HasParked(&fixture, 1, 0); }));
  fixture.server(0).CloseJob("j-0001", "worker:1 was lost");
  waiting.join();
  EXPECT_EQ(pulled.code(), absl::StatusCode::kCancelled);
  EXPECT_THAT(Message(pulled), HasSubstr("was closed: worker:1 was lost"));
  EXPECT_EQ(chief.Pull(0).status().code(),
            absl::StatusCode::kFailedPrecondition);
  fixture.server(0).CloseJob("j-0001", "again");
  // The ps takes the job again, from the start.
  ASSERT_OK(fixture.server(0).OpenJob(fixture.assignment(), 0));
  EXPECT_EQ(fixture.server(0).OpenJob(fixture.assignment(), 0).code(),
            absl::StatusCode::kAlreadyExists);
  ASSERT_OK(chief.Init(Constant(fixture, 3)));
  ASSERT_OK_AND_ASSIGN(const Flat values, chief.Pull(0));
  EXPECT_EQ(values, Constant(fixture, 3));
}

TEST(PsServerTest, ACallerThatGivesUpIsForgotten) {
  PsFixture fixture({.workers = 2});
  PlainWorker chief(&fixture, 0);
  ASSERT_OK(chief.Init(Constant(fixture, 0)));
  auto context = MakeContext(absl::Now() + kPsTimeout);
  grpc::Status pulled;
  std::thread waiting([&] {
    PullResponse response;
    pulled =
        fixture.stub(0).Pull(context.get(), chief.MakePull(0, 1), &response);
  });
  ASSERT_TRUE(
      Eventually(kPsTimeout, [&] { return HasParked(&fixture, 1, 0); }));
  context->TryCancel();
  waiting.join();
  EXPECT_EQ(pulled.error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(
      Eventually(kPsTimeout, [&] { return HasParked(&fixture, 0, 0); }));
}

TEST(PsServerTest, DrainingRefusesAndEndsCalls) {
  PsFixture fixture({.workers = 2});
  PlainWorker chief(&fixture, 0);
  ASSERT_OK(chief.Init(Constant(fixture, 0)));
  absl::Status pulled;
  std::thread waiting([&] { pulled = chief.Send(0, chief.MakePull(0, 1)); });
  ASSERT_TRUE(
      Eventually(kPsTimeout, [&] { return HasParked(&fixture, 1, 0); }));
  fixture.server(0).Drain(absl::Now() + kPsTimeout);
  waiting.join();
  EXPECT_EQ(pulled.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(chief.Pull(0).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(fixture.server(0).OpenJob(fixture.assignment(), 0).code(),
            absl::StatusCode::kUnavailable);
}

TEST(PsServerTest, ACutShowsOneState) {
  PsFixture fixture({.ps_count = 2, .workers = 2, .spec = [](JobSpec* spec) {
                       spec->mutable_consistency()->set_mode(
                           ConsistencySpec::ASYNC);
                     }});
  PlainWorker chief(&fixture, 0);
  PlainWorker other(&fixture, 1);
  ASSERT_OK(chief.BeginCut(1, {2, 1}));
  ASSERT_OK(chief.Init(Constant(fixture, 0)));
  ASSERT_OK(chief.PushPull(0, Constant(fixture, 1), 1));
  std::thread slow([&] {
    ASSERT_OK(other.Push(0, Constant(fixture, 10), 1));
    // At the cut: waits until it has ended.
    ASSERT_OK(other.Push(1, Constant(fixture, 100), 1));
  });
  ASSERT_OK(chief.Push(1, Constant(fixture, 1), 1));
  ASSERT_OK_AND_ASSIGN(const Flat at_cut, chief.PullCut(1));
  EXPECT_EQ(at_cut, Constant(fixture, -12));
  ASSERT_OK(chief.BeginCut(2, {3, 2}));
  ASSERT_OK(chief.EndCut(1));
  slow.join();
  ASSERT_OK(chief.Push(2, Constant(fixture, 1000), 1));
  ASSERT_OK_AND_ASSIGN(const Flat at_next, chief.PullCut(2));
  EXPECT_EQ(at_next, Constant(fixture, -1112));
  EXPECT_OK(chief.EndCut(1));  // a repeat
  EXPECT_OK(chief.EndCut(2));
  EXPECT_EQ(chief.EndCut(3).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(chief.PullCut(2).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_OK(chief.BeginCut(3, {9, 9}));  // it came after its end
  const absl::Status late = chief.BeginCut(4, {1, 5});
  EXPECT_EQ(late.code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(SmallestCutOf(late, 2), (std::vector<int64_t>{3, 5}));
}

TEST(PsServerTest, AJobWithoutBlocksHereIsHarmless) {
  PsFixture fixture({.ps_count = 3, .tensor_sizes = {5, 3}});
  ASSERT_TRUE(fixture.map().shard_blocks(2).empty());
  PlainWorker worker(&fixture, 0);
  const absl::Status status = worker.Send(2, worker.MakePull(2, 0));
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(status), HasSubstr("no block of the job is here"));
  fixture.server(2).CloseJob("j-0001", "done");
}

TEST(PsServerTest, ASchedulesEndComesWithTheInitialValues) {
  PsFixture fixture({.spec = [](JobSpec* spec) {
    spec->mutable_learning_rate()->set_schedule(LearningRateSpec::COSINE);
  }});
  PlainWorker worker(&fixture, 0);
  const absl::Status unknown = worker.Init(Constant(fixture, 0));
  EXPECT_EQ(unknown.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(unknown), HasSubstr("total_clocks is 0"));
  InitRequest zombie;
  *zombie.mutable_header()->mutable_caller() = worker.caller();
  zombie.mutable_header()->mutable_caller()->set_incarnation(7);
  zombie.mutable_header()->set_total_clocks(100);
  InitResponse response;
  EXPECT_EQ(
      fixture.stub(0)
          .Init(MakeContext(absl::Now() + kPsTimeout).get(), zombie, &response)
          .error_code(),
      grpc::StatusCode::FAILED_PRECONDITION);
  ASSERT_OK(worker.Init(Constant(fixture, 0), /*total_clocks=*/2));
  const absl::Status other =
      worker.Init(Constant(fixture, 0), /*total_clocks=*/3);
  EXPECT_EQ(other.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(other), HasSubstr("total_clocks is 3, an earlier Init "
                                        "said 2"));
  ASSERT_OK(worker.PushPull(0, Constant(fixture, 1), 1));
  ASSERT_OK_AND_ASSIGN(const Flat values,
                       worker.PushPull(1, Constant(fixture, 1), 1));
  EXPECT_EQ(values, Constant(fixture, -1.5f));  // rates 1 and 0.5
}

}  // namespace
}  // namespace syncline
