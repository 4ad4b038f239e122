// Goal: a shard that has no room for a call is asked again, for as long as the
// call may take, and every other refusal ends the call; what is wanted of the
// state is read, each array once and nothing else; what is written arrives,
// with its checksum. Method: a fake ps that refuses as it is told, and that has
// the state of a block's number.

#include "worker/client/state_client.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/base/busy.h"
#include "common/base/crc32c.h"
#include "common/base/mutex.h"
#include "common/rpc/grpc_status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/assignment_builder.h"
#include "tests/testing/fakes/fake_ps.h"
#include "tests/testing/status_matchers.h"
#include "worker/client/current_routing.h"

namespace syncline::worker {
namespace {

using ::testing::AllOf;
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

// --- The state, of blocks with two slots each ---

constexpr uint32_t kArrays = 3;
constexpr uint32_t kBlocks = 256;
constexpr int64_t kElements = 1 << 20;

class StateOfClientTest : public ::testing::Test {
 protected:
  StateOfClientTest() {
    Caller caller;
    caller.set_job_id("j");
    auto routing = CurrentRouting::Create(AssignmentBuilder({}, "j")
                                              .Parameter("w", {kElements})
                                              .Workers(1)
                                              .PsAt(ps_.address())
                                              .Build(),
                                          caller, absl::Seconds(20));
    EXPECT_OK(routing.status());
    routing_ = *std::move(routing);
    client_ = std::make_unique<StateClient>(
        StateClient::Options{.job_id = "j", .routing = routing_});
  }

  size_t CountOf(uint32_t block) const {
    return static_cast<size_t>(
        routing_->job()->table.blocks().blocks()[block].count);
  }
  // The array of a block.
  std::vector<float> ElementsOf(uint32_t block, uint32_t array) const {
    std::vector<float> elements(CountOf(block));
    for (size_t i = 0; i < elements.size(); ++i) {
      elements[i] = static_cast<float>(block * kArrays + array) +
                    static_cast<float>(i) / 65536;
    }
    return elements;
  }
  static absl::string_view BytesOf(const std::vector<float>& elements) {
    return {reinterpret_cast<const char*>(elements.data()),
            elements.size() * sizeof(float)};
  }

  FakePs::Answer Answer(const FakePs::Call& call) {
    if (call.method == "ReadHeader") {
      ReadHeaderResponse response;
      response.mutable_header()->set_slots(kArrays - 1);
      response.mutable_header()->add_workers();
      return {.response = response.SerializeAsString()};
    }
    const uint32_t number = ++calls_;
    if (number == failing_call_) {
      return {.status = ToGrpcStatus(absl::FailedPreconditionError("is away"))};
    }
    if (call.method == "WritePieces") return {};
    const auto request = call.As<ReadPiecesRequest>();
    ReadPiecesResponse response;
    for (const StatePiece& piece : request.pieces()) {
      *response.add_pieces() = piece;
      response.mutable_pieces()->rbegin()->set_updates(piece.block() + 1);
      absl::StrAppend(response.mutable_values(),
                      BytesOf(ElementsOf(piece.block(), piece.array())));
    }
    response.set_crc32c(Crc32c(response.values()));
    if (number == strange_call_) response.mutable_pieces(0)->set_block(1 << 30);
    if (number == damaged_call_) (*response.mutable_values())[7] ^= 1;
    return {.response = response.SerializeAsString()};
  }

  std::atomic<uint32_t> calls_{0};
  uint32_t failing_call_ = 0;
  uint32_t damaged_call_ = 0;
  uint32_t strange_call_ = 0;  // another piece than was asked for
  FakePs ps_{[this](const FakePs::Call& call) { return Answer(call); }};
  std::shared_ptr<CurrentRouting> routing_;
  std::unique_ptr<StateClient> client_;
};

TEST_F(StateOfClientTest, ReadsWhatIsWantedOnce) {
  ASSERT_EQ(routing_->job()->table.blocks().blocks().size(), kBlocks);
  std::vector<uint32_t> wanted;
  for (uint32_t block = 0; block < kBlocks; block += 2) wanted.push_back(block);
  for (const uint32_t first : {0u, 1u}) {
    Mutex mu;
    std::map<std::pair<uint32_t, uint32_t>, int> came;
    ASSERT_OK(
        client_
            ->Read(/*cut_id=*/9, /*clock=*/5,
                   {.blocks = wanted, .first_array = first, .arrays = kArrays},
                   [&](uint32_t block, uint32_t array, absl::string_view floats,
                       int64_t updates) {
                     MutexLock lock(&mu);
                     ++came[{block, array}];
                     EXPECT_EQ(updates, block + 1);
                     EXPECT_TRUE(floats == BytesOf(ElementsOf(block, array)));
                   })
            .status());
    EXPECT_EQ(came.size(), wanted.size() * (kArrays - first));
    for (const auto& [piece, times] : came) {
      EXPECT_EQ(piece.first % 2, 0u);
      EXPECT_GE(piece.second, first);
      EXPECT_EQ(times, 1);
    }
  }
}

TEST_F(StateOfClientTest, TheFirstErrorEndsIt) {
  std::vector<uint32_t> wanted;
  for (uint32_t block = 0; block < kBlocks; ++block) wanted.push_back(block);
  const auto read = [&] {
    return client_
        ->Read(/*cut_id=*/9, /*clock=*/5, {.blocks = wanted, .arrays = kArrays},
               [](uint32_t, uint32_t, absl::string_view, int64_t) {})
        .status();
  };
  failing_call_ = 2;
  EXPECT_THAT(std::string(read().message()),
              AllOf(HasSubstr("ps:0 at"), HasSubstr("ReadPieces, clock 5"),
                    HasSubstr("is away")));
  failing_call_ = 0;
  damaged_call_ = calls_ + 2;
  const absl::Status damaged = read();
  EXPECT_TRUE(absl::IsDataLoss(damaged)) << damaged;
  damaged_call_ = 0;
  strange_call_ = calls_ + 2;
  EXPECT_THAT(std::string(read().message()),
              HasSubstr("of block 1073741824 came in place of array"));
  strange_call_ = 0;
  EXPECT_OK(read());
}

TEST_F(StateOfClientTest, WhatIsWrittenArrives) {
  std::vector<uint32_t> owned;
  std::map<std::pair<uint32_t, uint32_t>, std::vector<float>> state;
  for (uint32_t block = 1; block < kBlocks; block += 3) {
    owned.push_back(block);
    for (uint32_t array = 0; array < kArrays; ++array) {
      state[{block, array}] = ElementsOf(block, array);
    }
  }
  ASSERT_OK(client_->Write(
      /*transfer=*/9, /*clock=*/5,
      {.blocks = owned,
       .arrays = kArrays,
       .array_of = [&](uint32_t block,
                       uint32_t array) -> absl::Span<const float> {
         return state.at({block, array});
       },
       .updates_of = [](uint32_t block) { return int64_t{block} + 1; },
       .owner = nullptr}));
  std::map<std::pair<uint32_t, uint32_t>, int> came;
  const auto calls = ps_.calls().Await(calls_);
  for (const FakePs::Call& call : calls) {
    const auto request = call.As<WritePiecesRequest>();
    EXPECT_EQ(request.transfer(), 9u);
    EXPECT_EQ(request.caller().job_id(), "j");
    EXPECT_EQ(request.crc32c(), Crc32c(request.values()));
    absl::string_view rest = request.values();
    for (const StatePiece& piece : request.pieces()) {
      const absl::string_view expected =
          BytesOf(state.at({piece.block(), piece.array()}));
      EXPECT_TRUE(rest.substr(0, expected.size()) == expected);
      rest.remove_prefix(expected.size());
      EXPECT_EQ(piece.updates(), piece.block() + 1);
      ++came[{piece.block(), piece.array()}];
    }
    EXPECT_TRUE(rest.empty());
  }
  EXPECT_EQ(came.size(), state.size());
  // More than one message.
  EXPECT_GT(calls.size(), 1u);
}

}  // namespace
}  // namespace syncline::worker
