// Goal: calls to several ps have one outcome, keep to their windows, are
// repeated only as RetryPolicy says, and leave nothing behind when they end.
// Method: one or two fake ps on port 0 that log every call and answer it, or
// hold it until the test lets it go.

#include "worker/client/transport/fanout_call.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/base/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/parameter_server.pb.h"
#include "tests/testing/fakes/fake_ps.h"

namespace syncline::worker {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

using Direction = FanoutCall::Direction;

FakePs::Answer Hold(const FakePs::Call&) { return {.is_held = true}; }
FakePs::Answer HoldTaken(const FakePs::Call&) {
  return {.is_held = true, .is_taken = true};
}

FanoutCall::Options OptionsFor(const std::vector<const FakePs*>& ps) {
  FanoutCall::Options options;
  options.job_id = "j-7";
  options.patience = absl::Seconds(60);
  options.push_window_bytes = 100;
  options.pull_window_bytes = 100;
  for (size_t shard = 0; shard < ps.size(); ++shard) {
    options.peers.push_back(
        {"ps:" + std::to_string(shard), ps[shard]->address()});
  }
  return options;
}

// The request is a message, so that a test knows the call again.
FanoutCall::Call CallOf(Direction direction, const std::string& name,
                        size_t bytes) {
  FanoutCall::Call call;
  call.method = direction == Direction::kPush ? "Push" : "Pull";
  call.direction = direction;
  const grpc::Slice slice(name);
  call.request = grpc::ByteBuffer(&slice, 1);
  call.bytes = bytes;
  call.clock = 41;
  return call;
}

std::vector<std::string> Names(const std::vector<FakePs::Call>& calls) {
  std::vector<std::string> names;
  for (const FakePs::Call& call : calls) names.push_back(call.request);
  return names;
}

std::vector<std::string> Methods(const std::vector<FakePs::Call>& calls) {
  std::vector<std::string> methods;
  for (const FakePs::Call& call : calls) methods.push_back(call.method);
  return methods;
}

TEST(FanoutCallTest, AWindowIsFilledUpToItsBytes) {
  FakePs ps(Hold);
  FanoutCall calls(OptionsFor({&ps}));
  for (const char* const name : {"a", "b", "c", "d"}) {
    calls.Start(CallOf(Direction::kPull, name, 40));
  }
  EXPECT_THAT(Names(ps.calls().Await(2)), UnorderedElementsAre("a", "b"));
  ps.Release();
  EXPECT_EQ(Names(ps.calls().Await(3)).back(), "c");
  ps.Release();
  EXPECT_EQ(Names(ps.calls().Await(4)).back(), "d");
  ps.Release();
  ps.Release();
  EXPECT_EQ(calls.Wait(), absl::OkStatus());
}

TEST(FanoutCallTest, OfWaitingCallsTheLowestRankGoesFirst) {
  FakePs ps(Hold);
  FanoutCall calls(OptionsFor({&ps}));
  calls.Start(CallOf(Direction::kPull, "first", 100));
  ps.calls().Await(1);
  for (const int rank : {5, 3, 4}) {
    FanoutCall::Call call =
        CallOf(Direction::kPull, "rank " + std::to_string(rank), 100);
    call.rank = rank;
    calls.Start(std::move(call));
  }
  for (size_t seen = 1; seen <= 4; ++seen) {
    ASSERT_THAT(ps.calls().Await(seen), SizeIs(seen));
    ps.Release();
  }
  EXPECT_EQ(calls.Wait(), absl::OkStatus());
  EXPECT_THAT(Names(ps.calls().Await(4)),
              ElementsAre("first", "rank 3", "rank 4", "rank 5"));
}

TEST(FanoutCallTest, APushLeavesItsWindowWhenTheShardHasTakenIt) {
  FakePs ps(HoldTaken);
  FanoutCall calls(OptionsFor({&ps}));
  for (const char* const name : {"a", "b", "c"}) {
    calls.Start(CallOf(Direction::kPush, name, 100));
  }
  // No call has been answered.
  EXPECT_THAT(Names(ps.calls().Await(3)), UnorderedElementsAre("a", "b", "c"));
  for (int i = 0; i < 3; ++i) ps.Release();
  EXPECT_EQ(calls.Wait(), absl::OkStatus());
}

TEST(FanoutCallTest, ARepetitionSendsTheSameBytes) {
  std::atomic<int> attempts{0};
  FakePs ps([&](const FakePs::Call&) -> FakePs::Answer {
    if (++attempts <= 2) {
      return {.status = {grpc::StatusCode::UNAVAILABLE, "starting"}};
    }
    return {.response = "done"};
  });
  FanoutCall calls(OptionsFor({&ps}));
  std::atomic<int> answers{0};
  FanoutCall::Call call = CallOf(Direction::kPush, "gradient", 8);
  call.on_response = [&](const grpc::ByteBuffer& response, absl::Time) {
    ++answers;
    EXPECT_EQ(response.Length(), 4u);
    return absl::OkStatus();
  };
  calls.Start(std::move(call));
  EXPECT_EQ(calls.Wait(), absl::OkStatus());
  EXPECT_EQ(answers, 1);
  EXPECT_THAT(Names(ps.calls().Await(3)),
              ElementsAre("gradient", "gradient", "gradient"));
}

// Has no room for any call; says of itself, so many times, that something came
// forward just now.
class FullShard {
 public:
  explicit FullShard(int moves) : moves_(moves) {}

  FakePs::Answer operator()(const FakePs::Call& call) {
    if (call.method != "GetShardStatus") {
      return {.status = {grpc::StatusCode::RESOURCE_EXHAUSTED, "no room"}};
    }
    ShardStatus status;
    status.add_jobs()->set_quiet_seconds(moves_-- > 0 ? 0 : -1);
    return {.response = status.SerializeAsString()};
  }

 private:
  std::atomic<int> moves_;
};

TEST(FanoutCallTest, AShardIsAskedBeforeACallIsGivenUp) {
  FullShard shard(/*moves=*/1);
  FakePs ps([&](const FakePs::Call& call) { return shard(call); });
  FanoutCall::Options options = OptionsFor({&ps});
  options.patience = absl::Seconds(1);
  FanoutCall calls(options);
  calls.Start(CallOf(Direction::kPull, "values", 8));
  const absl::Status status = calls.Wait();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("no room"));
  const std::vector<std::string> methods = Methods(ps.calls().Await(1));
  // Once the shard had moved, and the wait went on; then it had not.
  EXPECT_EQ(methods.back(), "GetShardStatus");
  EXPECT_GE(std::count(methods.begin(), methods.end(), "GetShardStatus"), 2);
}

TEST(FanoutCallTest, AnErrorNamesShardAddressJobClockAndMethod) {
  FakePs good([](const FakePs::Call&) { return FakePs::Answer(); });
  FakePs bad([](const FakePs::Call&) -> FakePs::Answer {
    return {.status = {grpc::StatusCode::INVALID_ARGUMENT, "no such block"}};
  });
  FanoutCall calls(OptionsFor({&good, &bad}));
  for (const uint32_t shard : {0, 1}) {
    FanoutCall::Call call = CallOf(Direction::kPush, "x", 8);
    call.shard = shard;
    calls.Start(std::move(call));
  }
  const absl::Status status = calls.Wait();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("ps:1"), HasSubstr(bad.address()),
                    HasSubstr("j-7"), HasSubstr("clock 41"), HasSubstr("Push"),
                    HasSubstr("no such block")));
  EXPECT_THAT(Methods(bad.calls().Await(1)), ElementsAre("Push"));
}

TEST(FanoutCallTest, ARefusalMayBeAnAnswer) {
  FakePs ps([](const FakePs::Call& call) -> FakePs::Answer {
    if (call.request != "refused") return {};
    return {.status = {grpc::StatusCode::OUT_OF_RANGE, "past it"}};
  });
  FanoutCall calls(OptionsFor({&ps}));
  std::atomic<int> refusals{0};
  FanoutCall::Call call = CallOf(Direction::kPush, "refused", 8);
  call.on_refused = [&](const absl::Status& refusal) {
    ++refusals;
    EXPECT_EQ(refusal, absl::OutOfRangeError("past it"));
    return absl::OkStatus();
  };
  calls.Start(std::move(call));
  EXPECT_EQ(calls.Wait(), absl::OkStatus());
  EXPECT_EQ(refusals, 1);
  calls.Start(CallOf(Direction::kPush, "another", 8));
  EXPECT_EQ(calls.Wait(), absl::OkStatus());
}

TEST(FanoutCallTest, CancelEndsAWaitForTime) {
  FakePs ps(Hold);
  FanoutCall calls(OptionsFor({&ps}));
  EXPECT_EQ(calls.WaitUntil(MonotonicNow()), absl::OkStatus());
  std::thread cancels([&] { calls.Cancel(absl::CancelledError("enough")); });
  EXPECT_EQ(calls.WaitUntil(absl::InfiniteFuture()),
            absl::CancelledError("enough"));
  cancels.join();
}

TEST(FanoutCallTest, AnErrorOfTheCallersOwnEndsTheRest) {
  FakePs ps([](const FakePs::Call& call) -> FakePs::Answer {
    return {.is_held = call.request == "held"};
  });
  FanoutCall calls(OptionsFor({&ps}));
  calls.Start(CallOf(Direction::kPull, "held", 8));
  FanoutCall::Call call = CallOf(Direction::kPull, "odd", 8);
  call.on_response = [](const grpc::ByteBuffer&, absl::Time) {
    return absl::InternalError("answered nonsense");
  };
  calls.Start(std::move(call));
  const absl::Status status = calls.Wait();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("answered nonsense"));
}

TEST(FanoutCallTest, CancelEndsAllCallsOnAllShards) {
  FakePs first(Hold);
  FakePs second(Hold);
  FanoutCall calls(OptionsFor({&first, &second}));
  std::atomic<int> answers{0};
  // Stands for the memory of tensors, which callbacks own.
  const auto owned = std::make_shared<int>(0);
  const auto start = [&](uint32_t shard, size_t bytes) {
    FanoutCall::Call call = CallOf(Direction::kPull, "values", bytes);
    call.shard = shard;
    call.on_response = [&answers, owned](const grpc::ByteBuffer&, absl::Time) {
      ++answers;
      return absl::OkStatus();
    };
    calls.Start(std::move(call));
  };
  // Of each shard one call is under way, and one waits for its window.
  for (const uint32_t shard : {0, 1}) {
    start(shard, 100);
    start(shard, 100);
  }
  first.calls().Await(1);
  second.calls().Await(1);
  calls.Cancel(absl::AbortedError("the job was stopped"));
  EXPECT_EQ(calls.Wait(), absl::AbortedError("the job was stopped"));
  EXPECT_EQ(owned.use_count(), 1);
  EXPECT_EQ(answers, 0);
  // The object is closed: this call goes nowhere.
  start(0, 1);
  EXPECT_EQ(calls.Wait(), absl::AbortedError("the job was stopped"));
  EXPECT_EQ(owned.use_count(), 1);
  EXPECT_THAT(first.calls().Await(1), SizeIs(1));
  EXPECT_THAT(second.calls().Await(1), SizeIs(1));
}

TEST(FanoutCallTest, CancelEndsAPauseBetweenAttempts) {
  FakePs ps([](const FakePs::Call&) -> FakePs::Answer {
    return {.status = {grpc::StatusCode::UNAVAILABLE, "gone"}};
  });
  FanoutCall calls(OptionsFor({&ps}));
  calls.Start(CallOf(Direction::kPush, "x", 8));
  // By now the backoff is longer than a round trip.
  ps.calls().Await(3);
  calls.Cancel(absl::CancelledError("stop"));
  EXPECT_EQ(calls.Wait(), absl::CancelledError("stop"));
}

}  // namespace
}  // namespace syncline::worker
