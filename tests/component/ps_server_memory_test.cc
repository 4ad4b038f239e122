// Goal: a ps keeps to the memory that it promises, and shows what it holds.
// Method: jobs and calls of known sizes against a small budget, from a client
// made of nothing but generated code.

#include <unistd.h>

#include <atomic>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "common/base/busy.h"
#include "common/rpc/grpc_status.h"
#include "common/system/malloc_policy.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/component/ps_server_fixture.h"
#include "tests/testing/eventually.h"
#include "tests/testing/process_memory.h"
#include "tests/testing/ps_fixture.h"
#include "tests/testing/status_matchers.h"

namespace syncline {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

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
        MakeContext(absl::Now() + kPsTimeout).get(), init, &response)));
  }
  // A push of a later clock is parked, with its bytes; a second finds no room.
  absl::Status parked;
  std::thread waiting([&] { parked = chief.Send(0, push(chief, 0, 1)); });
  ASSERT_TRUE(
      Eventually(kPsTimeout, [&] { return HasParked(&fixture, 0, 1); }));
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
  EXPECT_TRUE(Eventually(kPsTimeout, [&] {
    ShardStatus status;
    fixture.stub(0).GetShardStatus(MakeContext(absl::Now() + kPsTimeout).get(),
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
  EXPECT_TRUE(Eventually(kPsTimeout, [&] { return refused == 1; }));
  EXPECT_TRUE(
      Eventually(kPsTimeout, [&] { return HasParked(&fixture, kFit, 0); }));
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

// A ps that takes gigabytes for a job must answer a stop soon.
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
  // The job is not open, and can be opened.
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
  EXPECT_TRUE(
      Eventually(kPsTimeout, [&] { return HasParked(&fixture, 2, 0); }));
  ShardStatus status;
  EXPECT_OK(FromGrpcStatus(fixture.stub(0).GetShardStatus(
      MakeContext(absl::Now() + kPsTimeout).get(), ShardStatusRequest(),
      &status)));
  // The lists of the two pulls, which are bounded so.
  EXPECT_GT(status.in_flight_bytes(), 0u);
  EXPECT_LT(status.in_flight_bytes(), 8u << 10);
  EXPECT_OK(PlainWorker(&fixture, 1).Push(0, Constant(fixture, 3), 1));
  first.join();
  repeat.join();
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
      MakeContext(absl::Now() + kPsTimeout).get(), request, &status)));
  const ShardStatus::Job& job = status.jobs(0);
  EXPECT_EQ(job.blocks_initialised(), job.block_count());
  EXPECT_EQ(job.value_bytes(), 4008u * 4);
  EXPECT_EQ(job.slot_bytes(), 4008u * 8);
  EXPECT_EQ(job.fold_bytes(), 4008u * 4);  // the chief's, until the other's
  EXPECT_EQ(job.workers(0).closed_clocks(), 1);
  EXPECT_EQ(job.workers(1).closed_clocks(), 0);
  EXPECT_TRUE(Eventually(kPsTimeout, [&] {
    return metrics.Render().find("syncline_ps_fold_bytes 16032") !=
           std::string::npos;
  }));
  EXPECT_THAT(
      metrics.Render(),
      AllOf(HasSubstr("syncline_ps_requests_total{code=\"OK\",rpc=\"Push\"} 1"),
            HasSubstr("syncline_ps_received_bytes_total 32064"),
            HasSubstr("syncline_ps_slot_bytes 32064"),
            HasSubstr("syncline_ps_clock_spread_clocks 1")));
  // The chief waits for the other worker.
  EXPECT_THAT(
      metrics.Render(),
      AllOf(
          HasSubstr("syncline_ps_job_clock{job=\"j-0001\"} 0\n"),
          HasSubstr("syncline_ps_job_clock_spread_clocks{job=\"j-0001\"} 1\n"),
          HasSubstr("syncline_ps_blame_seconds_total{job=\"j-0001\",rank="
                    "\"0\"} 0\n"),
          Not(HasSubstr("syncline_ps_blame_seconds_total{job=\"j-0001\",rank="
                        "\"1\"} 0\n")),
          HasSubstr("syncline_ps_non_finite_total{job=\"j-0001\",rank=\"1\"} "
                    "0\n")));
}

}  // namespace
}  // namespace syncline
