// Goal: a parameter server, over real gRPC, does what the proto promises: each
// mode's arithmetic, exactly-once, parking, cuts, refusals that say why.
// Method: servers in this process and a client made of nothing but generated
// code; integer gradients where sums must be exact.

#include <unistd.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/busy.h"
#include "common/base/random.h"
#include "common/rpc/grpc_status.h"
#include "common/system/malloc_policy.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/eventually.h"
#include "tests/testing/process_memory.h"
#include "tests/testing/ps_fixture.h"
#include "tests/testing/status_matchers.h"

namespace syncline {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr absl::Duration kTimeout = absl::Seconds(20);

Flat RandomFlat(const PsFixture& fixture, uint64_t seed) {
  Random random(seed);
  Flat values(fixture.map().element_count());
  for (float& value : values) value = static_cast<float>(random.Normal());
  return values;
}

Flat Constant(const PsFixture& fixture, float value) {
  return Flat(fixture.map().element_count(), value);
}

std::string Message(const absl::Status& status) {
  return std::string(status.message());
}

// Runs one function per worker at the same time.
void ForEachWorker(uint32_t workers, std::function<void(uint32_t)> run) {
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < workers; ++rank) {
    threads.emplace_back(run, rank);
  }
  for (std::thread& thread : threads) thread.join();
}

bool HasParked(PsFixture* fixture, uint32_t pulls, uint32_t pushes) {
  ShardStatus status;
  fixture->stub(0).GetShardStatus(MakeContext(absl::Now() + kTimeout).get(),
                                  ShardStatusRequest(), &status);
  return status.jobs_size() == 1 && status.jobs(0).parked_pulls() == pulls &&
         status.jobs(0).parked_pushes() == pushes;
}

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

// Everything but FoldNorm and FoldStatistics, which have tests of their own.
std::vector<std::pair<std::string, absl::Status>> CallEverythingAs(
    const Caller& caller, PsFixture* fixture) {
  ParameterServer::Stub& stub = fixture->stub(0);
  std::vector<std::pair<std::string, absl::Status>> calls;
  const auto call = [&](const std::string& name, auto method, auto request,
                        auto response) {
    const auto context = MakeContext(absl::Now() + kTimeout);
    calls.push_back({name, FromGrpcStatus((stub.*method)(context.get(), request,
                                                         &response))});
  };
  PlainWorker chief(fixture, 0);
  InitRequest init;
  *init.mutable_header()->mutable_caller() = caller;
  call("Init", &ParameterServer::Stub::Init, init, InitResponse());
  PushRequest push = chief.MakePush(0, 0, Constant(*fixture, 1), 1);
  *push.mutable_header()->mutable_caller() = caller;
  call("Push", &ParameterServer::Stub::Push, push, PushResponse());
  PullRequest pull = chief.MakePull(0, 0);
  *pull.mutable_header()->mutable_caller() = caller;
  call("Pull", &ParameterServer::Stub::Pull, pull, PullResponse());
  PushPullRequest both;
  *both.mutable_header()->mutable_push() = push.header();
  *both.mutable_header()->mutable_pull() = pull.header();
  both.mutable_header()->mutable_pull()->clear_caller();
  both.set_payload(push.payload());
  call("PushPull", &ParameterServer::Stub::PushPull, both, PullResponse());
  BeginCutRequest begin;
  *begin.mutable_caller() = caller;
  begin.set_cut_id(1);
  begin.add_clocks(1);
  begin.set_hold_seconds(1);
  call("BeginCut", &ParameterServer::Stub::BeginCut, begin, BeginCutResponse());
  EndCutRequest end;
  *end.mutable_caller() = caller;
  end.set_cut_id(1);
  call("EndCut", &ParameterServer::Stub::EndCut, end, EndCutResponse());
  ActivityRequest activity;
  *activity.mutable_caller() = caller;
  activity.set_total(1);
  call("ReportActivity", &ParameterServer::Stub::ReportActivity, activity,
       ActivityResponse());
  ScanTableRequest scan;
  *scan.mutable_header()->mutable_caller() = caller;
  call("ScanTable", &ParameterServer::Stub::ScanTable, scan,
       ScanTableResponse());
  OfferMemoryRequest offer;
  *offer.mutable_caller() = caller;
  call("OfferMemory", &ParameterServer::Stub::OfferMemory, offer,
       OfferMemoryResponse());
  AttachMemoryRequest attach;
  *attach.mutable_caller() = caller;
  attach.set_token("guess");
  call("AttachMemory", &ParameterServer::Stub::AttachMemory, attach,
       AttachMemoryResponse());
  return calls;
}

TEST(PsServerTest, WhoDoesNotKnowTheIncarnationIsRefusedInEveryCall) {
  PsFixture fixture({.workers = 1});
  PlainWorker chief(&fixture, 0);
  ASSERT_OK(chief.Init(Constant(fixture, 1)));
  Caller stranger = chief.caller();
  stranger.set_incarnation(4711);
  for (const auto& [name, status] : CallEverythingAs(stranger, &fixture)) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << name;
    EXPECT_THAT(Message(status), HasSubstr("incarnation 0x")) << name;
  }
  Caller unknown = chief.caller();
  unknown.set_rank(1);
  for (const auto& [name, status] : CallEverythingAs(unknown, &fixture)) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_THAT(Message(status), HasSubstr("rank 1 calls")) << name;
  }
  // Nothing has changed.
  ASSERT_OK_AND_ASSIGN(const Flat values, chief.Pull(0));
  EXPECT_EQ(values, Constant(fixture, 1));
}

TEST(PsServerTest, PullsWaitForInitialisation) {
  PsFixture fixture({.workers = 2});
  std::thread waiting([&] {
    const absl::StatusOr<Flat> pulled = PlainWorker(&fixture, 1).Pull(0);
    EXPECT_OK(pulled);
  });
  EXPECT_TRUE(Eventually(kTimeout, [&] { return HasParked(&fixture, 1, 0); }));
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
  ASSERT_TRUE(Eventually(kTimeout, [&] { return HasParked(&fixture, 1, 0); }));
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
  auto context = MakeContext(absl::Now() + kTimeout);
  grpc::Status pulled;
  std::thread waiting([&] {
    PullResponse response;
    pulled =
        fixture.stub(0).Pull(context.get(), chief.MakePull(0, 1), &response);
  });
  ASSERT_TRUE(Eventually(kTimeout, [&] { return HasParked(&fixture, 1, 0); }));
  context->TryCancel();
  waiting.join();
  EXPECT_EQ(pulled.error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(Eventually(kTimeout, [&] { return HasParked(&fixture, 0, 0); }));
}

TEST(PsServerTest, DrainingRefusesAndEndsCalls) {
  PsFixture fixture({.workers = 2});
  PlainWorker chief(&fixture, 0);
  ASSERT_OK(chief.Init(Constant(fixture, 0)));
  absl::Status pulled;
  std::thread waiting([&] { pulled = chief.Send(0, chief.MakePull(0, 1)); });
  ASSERT_TRUE(Eventually(kTimeout, [&] { return HasParked(&fixture, 1, 0); }));
  fixture.server(0).Drain(absl::Now() + kTimeout);
  waiting.join();
  EXPECT_EQ(pulled.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(chief.Pull(0).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(fixture.server(0).OpenJob(fixture.assignment(), 0).code(),
            absl::StatusCode::kUnavailable);
}

TEST(PsServerTest, BytesInFlightAreBounded) {
  // One block of 1 MiB; at most 8 MiB in flight, 4 of them for waiting pushes.
  PsFixture fixture({.workers = 2,
                     .tensor_sizes = std::vector<int64_t>(256, 1 << 18),
                     .in_flight_bytes = 8 << 20});
  PlainWorker chief(&fixture, 0);
  PlainWorker other(&fixture, 1);
  const auto push = [&](const PlainWorker& worker, uint32_t first_block,
                        int64_t clock) {
    PushRequest request;
    *request.mutable_header()->mutable_caller() = worker.caller();
    request.mutable_header()->set_clock(clock);
    request.mutable_header()->set_sample_count(1);
    request.mutable_header()->set_blocks_in_clock(256);
    for (uint32_t i = 0; i < 3; ++i) {
      request.mutable_header()->add_blocks(first_block + i);
    }
    request.set_payload(std::string(3 << 20, '\0'));
    return request;
  };
  for (uint32_t block = 0; block < 256; ++block) {
    InitRequest init;
    *init.mutable_header()->mutable_caller() = chief.caller();
    init.mutable_header()->add_blocks(block);
    init.set_payload(std::string(1 << 20, '\0'));
    InitResponse response;
    ASSERT_OK(FromGrpcStatus(fixture.stub(0).Init(
        MakeContext(absl::Now() + kTimeout).get(), init, &response)));
  }
  // A push of a later clock is parked, with its bytes; a second finds no room.
  absl::Status parked;
  std::thread waiting([&] { parked = chief.Send(0, push(chief, 0, 1)); });
  ASSERT_TRUE(Eventually(kTimeout, [&] { return HasParked(&fixture, 0, 1); }));
  const absl::Status refused = chief.Send(0, push(chief, 3, 1));
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Message(refused), HasSubstr("calls that must wait hold"));
  // Pushes that can be accepted still are, and accepted ones hold no room.
  for (uint32_t block = 0; block + 3 <= 30; block += 3) {
    EXPECT_OK(other.Send(0, push(other, block, 0)));
  }
  fixture.server(0).CloseJob("j-0001", "enough");
  waiting.join();
  EXPECT_EQ(parked.code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(Eventually(kTimeout, [&] {
    ShardStatus status;
    fixture.stub(0).GetShardStatus(MakeContext(absl::Now() + kTimeout).get(),
                                   ShardStatusRequest(), &status);
    return status.in_flight_bytes() == 0;
  }));
}

TEST(PsServerTest, WaitingPullsHoldAtMostHalfOfTheBudget) {
  // A waiting pull holds 1 KiB and 8 bytes for each of its blocks: 129 KiB
  // here. So 31 of them fit into half of the budget, and nearly 32.
  constexpr uint32_t kFit = 31;
  PsFixture fixture({.tensor_sizes = std::vector<int64_t>(1 << 14, 1),
                     .in_flight_bytes = 8 << 20});
  std::vector<absl::Status> ended(kFit + 1);
  std::vector<std::thread> waiting;
  std::atomic<uint32_t> refused = 0;
  for (absl::Status& status : ended) {
    waiting.emplace_back([&] {
      PlainWorker worker(&fixture, 0);
      status = worker.Send(0, worker.MakePull(0, 0));
      if (IsBusy(status)) ++refused;
    });
  }
  EXPECT_TRUE(Eventually(kTimeout, [&] { return refused == 1; }));
  EXPECT_TRUE(
      Eventually(kTimeout, [&] { return HasParked(&fixture, kFit, 0); }));
  fixture.server(0).CloseJob("j-0001", "enough");
  for (std::thread& thread : waiting) thread.join();
  EXPECT_EQ(refused, 1u);
  for (const absl::Status& status : ended) {
    if (IsBusy(status)) {
      EXPECT_THAT(Message(status),
                  AllOf(HasSubstr("calls that must wait hold"),
                        HasSubstr("at most half of 8388608 are allowed")));
    } else {
      EXPECT_EQ(status.code(), absl::StatusCode::kCancelled) << status;
    }
  }
}

TEST(PsServerTest, WhatAJobIsPromisedIsResidentBeforeTheFirstCall) {
  ReturnFreedMemory();
  const uint64_t before = ProcessMemoryBytes(getpid(), "RssAnon");
  const PsFixture fixture(
      {.tensor_sizes = std::vector<int64_t>(16, 1 << 20)});  // 64 MiB
  EXPECT_GE(ProcessMemoryBytes(getpid(), "RssAnon"), before + 62 * (1 << 20));
}

// So a ps that takes gigabytes answers a stop soon.
TEST(PsServerTest, OpeningEndsWhereTheJobIsNoLongerWanted) {
  PsFixture fixture({.tensor_sizes = std::vector<int64_t>(64, 1 << 20)});
  fixture.server(0).CloseJob("j-0001", "opened again");
  int asked = 0;
  EXPECT_EQ(fixture.server(0)
                .OpenJob(fixture.assignment(), 0,
                         [&] {
                           return ++asked == 1
                                      ? absl::OkStatus()
                                      : absl::CancelledError("stopped");
                         })
                .code(),
            absl::StatusCode::kCancelled);
  EXPECT_EQ(asked, 2);
  // It is not open, and can be opened.
  EXPECT_EQ(fixture.server(0).CloseJob("j-0001", "is it?"), std::nullopt);
  EXPECT_OK(fixture.server(0).OpenJob(fixture.assignment(), 0));
}

TEST(PsServerTest, AnswersBeyondWhatIsSentAtATimeFollow) {
  // 31 MiB of answers to one worker, which has 4 on their way at a time.
  PsFixture fixture({.tensor_sizes = {1015808}});
  PlainWorker worker(&fixture, 0);
  ASSERT_OK(worker.Init(Constant(fixture, 2)));
  ForEachWorker(8, [&](uint32_t) {
    PlainWorker again(&fixture, 0);
    ASSERT_OK_AND_ASSIGN(const Flat values, again.Pull(0));
    EXPECT_EQ(values, Constant(fixture, 2));
  });
}

// Repeats that held their payload would take the room that the worker they wait
// for needs.
TEST(PsServerTest, ARepeatedPushHoldsNoBytesWhileItsPullWaits) {
  PsFixture fixture({.workers = 2});
  ASSERT_OK(PlainWorker(&fixture, 0).Init(Constant(fixture, 0)));
  const auto push_pull = [&] {
    const absl::StatusOr<Flat> values =
        PlainWorker(&fixture, 0).PushPull(0, Constant(fixture, 1), 1);
    ASSERT_OK(values);
    EXPECT_EQ(*values, Constant(fixture, -2));
  };
  std::thread first(push_pull);
  std::thread repeat(push_pull);
  EXPECT_TRUE(Eventually(kTimeout, [&] { return HasParked(&fixture, 2, 0); }));
  ShardStatus status;
  EXPECT_OK(FromGrpcStatus(
      fixture.stub(0).GetShardStatus(MakeContext(absl::Now() + kTimeout).get(),
                                     ShardStatusRequest(), &status)));
  // The lists of the two pulls, which are bounded so.
  EXPECT_GT(status.in_flight_bytes(), 0u);
  EXPECT_LT(status.in_flight_bytes(), 8u << 10);
  EXPECT_OK(PlainWorker(&fixture, 1).Push(0, Constant(fixture, 3), 1));
  first.join();
  repeat.join();
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
  EXPECT_EQ(chief.BeginCut(3, {1, 5}).code(), absl::StatusCode::kOutOfRange);
}

class RefusalTest : public ::testing::Test {
 protected:
  RefusalTest()
      : fixture_({.ps_count = 2, .workers = 2}), worker_(&fixture_, 0) {
    EXPECT_OK(worker_.Init(Constant(fixture_, 0)));
    push_ = worker_.MakePush(0, 0, Constant(fixture_, 1), 4);
    pull_ = worker_.MakePull(0, 0);
  }
  void ExpectPush(absl::StatusCode code, const std::string& text) {
    const absl::Status status = worker_.Send(0, push_);
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(Message(status), HasSubstr(text));
    push_ = worker_.MakePush(0, 0, Constant(fixture_, 1), 4);
  }
  void ExpectPull(absl::StatusCode code, const std::string& text) {
    const absl::Status status = worker_.Send(0, pull_);
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(Message(status), HasSubstr(text));
    pull_ = worker_.MakePull(0, 0);
  }
  PushHeader& header() { return *push_.mutable_header(); }

  PsFixture fixture_;
  PlainWorker worker_;
  PushRequest push_;
  PullRequest pull_;
};

TEST_F(RefusalTest, StrangeCallers) {
  header().mutable_caller()->set_job_id("j-0002");
  ExpectPush(absl::StatusCode::kFailedPrecondition, "job j-0002 is not open");
  header().mutable_caller()->set_routing_version(2);
  ExpectPush(absl::StatusCode::kAborted, "the current one is 1");
  header().mutable_caller()->set_rank(7);
  ExpectPush(absl::StatusCode::kInvalidArgument, "ranks 0 to 1");
  header().mutable_caller()->set_incarnation(1);
  ExpectPush(absl::StatusCode::kFailedPrecondition,
             "of worker:0 at 10.0.0.0:1 was replaced by 0x2325");
}

TEST_F(RefusalTest, BlocksThatAreNotHere) {
  header().set_blocks(0, 100000);
  ExpectPush(absl::StatusCode::kInvalidArgument, "block 100000 does not exist");
  header().set_blocks(0, fixture_.map().shard_blocks(1)[0]);
  ExpectPush(absl::StatusCode::kInvalidArgument, "belongs to ps rank 1");
  header().mutable_blocks()->SwapElements(0, 1);
  ExpectPush(absl::StatusCode::kInvalidArgument, "must be ascending");
  header().set_blocks(1, header().blocks(0));
  ExpectPush(absl::StatusCode::kInvalidArgument, "must be ascending");
  pull_.mutable_header()->set_blocks(0, 100000);
  ExpectPull(absl::StatusCode::kInvalidArgument, "block 100000 does not exist");
}

TEST_F(RefusalTest, PayloadsThatDoNotFit) {
  push_.mutable_payload()->pop_back();
  ExpectPush(absl::StatusCode::kInvalidArgument, "the payload has");
  push_.mutable_payload()->append("abcd");
  ExpectPush(absl::StatusCode::kInvalidArgument, "the payload has");
  push_.clear_payload();
  ExpectPush(absl::StatusCode::kInvalidArgument, "the payload has 0 bytes");
}

TEST_F(RefusalTest, NumbersThatCannotBe) {
  header().set_clock(-1);
  ExpectPush(absl::StatusCode::kInvalidArgument, "push.clock is -1");
  header().set_sample_count(uint64_t{1} << 60);
  ExpectPush(absl::StatusCode::kInvalidArgument, "push.sample_count");
  header().set_sample_count(0);
  ExpectPush(absl::StatusCode::kInvalidArgument, "without any sample");
  header().set_blocks_in_clock(1);
  ExpectPush(absl::StatusCode::kInvalidArgument, "announced with 1 blocks");
  header().set_blocks_in_clock(100000);
  ExpectPush(absl::StatusCode::kInvalidArgument, "blocks_in_clock is 100000");
  header().set_squared_norm(std::numeric_limits<double>::quiet_NaN());
  ExpectPush(absl::StatusCode::kInvalidArgument, "push.squared_norm is nan");
  pull_.mutable_header()->set_wait_seconds(0);
  ExpectPull(absl::StatusCode::kInvalidArgument, "pull.wait_seconds is 0");
  pull_.mutable_header()->set_wait_seconds(
      std::numeric_limits<double>::infinity());
  ExpectPull(absl::StatusCode::kInvalidArgument, "pull.wait_seconds is inf");
  pull_.mutable_header()->set_cut_id(9);
  ExpectPull(absl::StatusCode::kFailedPrecondition, "cut 9 is not announced");
  // None of it left a trace.
  EXPECT_OK(worker_.Send(0, push_));
}

TEST_F(RefusalTest, CutsThatWouldHoldForTooLong) {
  BeginCutRequest cut;
  *cut.mutable_caller() = worker_.caller();
  cut.set_cut_id(1);
  cut.add_clocks(0);
  cut.add_clocks(0);
  const auto begin = [&](double hold_seconds) {
    cut.set_hold_seconds(hold_seconds);
    BeginCutResponse response;
    return FromGrpcStatus(fixture_.stub(0).BeginCut(
        MakeContext(absl::Now() + kTimeout).get(), cut, &response));
  };
  constexpr double kMost = 4 * 24 * 60 * 60;
  for (const double hold :
       {0.0, -1.0, kMost * 1.001, std::numeric_limits<double>::infinity(),
        std::numeric_limits<double>::quiet_NaN()}) {
    const absl::Status refused = begin(hold);
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << hold;
    EXPECT_THAT(Message(refused), HasSubstr("hold_seconds of cut 1"));
  }
  EXPECT_OK(begin(kMost));
}

TEST_F(RefusalTest, ActivitiesThatCannotBe) {
  ActivityRequest activity;
  *activity.mutable_caller() = worker_.caller();
  const auto report = [&](int64_t clock, uint64_t done, uint64_t total,
                          const std::string& what) {
    activity.set_clock(clock);
    activity.set_done(done);
    activity.set_total(total);
    activity.set_what(what);
    ActivityResponse response;
    return FromGrpcStatus(fixture_.stub(0).ReportActivity(
        MakeContext(absl::Now() + kTimeout).get(), activity, &response));
  };
  EXPECT_OK(report(0, 3, 3, std::string(64, 'x')));
  for (const absl::Status& refused :
       {report(-1, 0, 1, ""), report(0, 0, 0, ""), report(0, 2, 1, ""),
        report(0, 0, 1, std::string(65, 'x'))}) {
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << refused;
  }
}

TEST_F(RefusalTest, NormsOnlyAtTheFirstShardAndOnlyTrueOnes) {
  FoldNormRequest request;
  request.set_job_id("j-0001");
  request.set_ps_rank(1);
  request.set_incarnation(501);
  const auto ask = [&](uint32_t ps) {
    FoldNormResponse response;
    return FromGrpcStatus(fixture_.stub(ps).FoldNorm(
        MakeContext(absl::Now() + kTimeout).get(), request, &response));
  };
  EXPECT_THAT(Message(ask(1)), HasSubstr("are folded at ps:0"));
  EXPECT_THAT(Message(ask(0)), HasSubstr("norms of 0 blocks from ps:1"));
  request.set_incarnation(1);
  EXPECT_EQ(ask(0).code(), absl::StatusCode::kFailedPrecondition);
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
          .Init(MakeContext(absl::Now() + kTimeout).get(), zombie, &response)
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

TEST(PsServerTest, RefusesJobsItCannotRun) {
  PsFixture fixture({});
  JobAssignment assignment = fixture.assignment();
  assignment.set_job_id("j-0002");
  const auto open = [&] {
    return Message(fixture.server(0).OpenJob(assignment, 0));
  };
  assignment.mutable_spec()->mutable_optimizer()->set_kind(OptimizerSpec::LAMB);
  assignment.mutable_spec()->mutable_consistency()->set_mode(
      ConsistencySpec::ASYNC);
  EXPECT_THAT(open(), HasSubstr("optimizer.kind: LAMB but for SYNC is not "
                                "built"));
  assignment = fixture.assignment();
  assignment.set_job_id("j-0002");
  assignment.mutable_parameters(0)->set_dims(0, int64_t{1} << 39);
  EXPECT_THAT(open(), HasSubstr("MiB are available"));
  assignment.mutable_parameters(0)->add_dims(int64_t{1} << 40);
  EXPECT_THAT(open(), HasSubstr("tensor t0: more than"));
  assignment.clear_workers();
  EXPECT_THAT(open(), HasSubstr("no worker"));
  EXPECT_THAT(Message(fixture.server(0).OpenJob(fixture.assignment(), 5)),
              HasSubstr("there is no rank 5"));
}

TEST(PsServerTest, StatusAndMetricsShowWhatIsHeld) {
  MetricsRegistry metrics;
  PsFixture fixture({.workers = 2, .metrics = &metrics, .spec = [](JobSpec* s) {
                       s->mutable_optimizer()->set_kind(OptimizerSpec::ADAM);
                     }});
  PlainWorker chief(&fixture, 0);
  ASSERT_OK(chief.Init(Constant(fixture, 0)));
  ASSERT_OK(chief.Push(0, Constant(fixture, 1), 1));
  ShardStatusRequest request;
  request.set_job_id("j-0001");
  ShardStatus status;
  ASSERT_OK(FromGrpcStatus(fixture.stub(0).GetShardStatus(
      MakeContext(absl::Now() + kTimeout).get(), request, &status)));
  const ShardStatus::Job& job = status.jobs(0);
  EXPECT_EQ(job.blocks_initialised(), job.block_count());
  EXPECT_EQ(job.value_bytes(), 4008u * 4);
  EXPECT_EQ(job.slot_bytes(), 4008u * 8);
  EXPECT_EQ(job.fold_bytes(), 4008u * 4);  // the chief's, until the other's
  EXPECT_EQ(job.workers(0).closed_clocks(), 1);
  EXPECT_EQ(job.workers(1).closed_clocks(), 0);
  EXPECT_TRUE(Eventually(kTimeout, [&] {
    return metrics.Render().find("syncline_ps_fold_bytes 16032") !=
           std::string::npos;
  }));
  EXPECT_THAT(
      metrics.Render(),
      AllOf(HasSubstr("syncline_ps_requests_total{code=\"OK\",rpc=\"Push\"} 1"),
            HasSubstr("syncline_ps_received_bytes_total 32064"),
            HasSubstr("syncline_ps_slot_bytes 32064"),
            HasSubstr("syncline_ps_clock_spread_clocks 1")));
}

}  // namespace
}  // namespace syncline
