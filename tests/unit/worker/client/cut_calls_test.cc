// Goal: a cut is announced and ended on every shard that takes part and on no
// other, and a scan gives the rows of all shards, message after message, until
// something is wrong. Method: three fake ps; the first and the last take part.

#include "worker/client/cut_calls.h"

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/rpc/grpc_status.h"
#include "common/wire/routing_version.h"
#include "common/wire/smallest_cut.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/client_parts.h"
#include "tests/testing/eventually.h"
#include "tests/testing/status_matchers.h"

namespace syncline::worker {
namespace {

using syncline::testing::ClientParts;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uint32_t kShards = 3;

class CutCallsTest : public ::testing::Test {
 protected:
  CutCallsTest()
      : parts_(*BlockMap::Create({{"w", 1}}, kShards), Tensors(),
               [this](uint32_t shard, const FakePs::Call& call) {
                 return Serve(shard, call);
               }),
        cuts_(Calling({0, 2}), parts_.context().headers, &parts_.calls(),
              &coordinator_) {}

  static CutCalls::Options Calling(std::vector<uint32_t> shards) {
    return {.job_id = "j-7",
            .shards = std::move(shards),
            .peers = {{"ps:0", "a"}, {"ps:1", "b"}, {"ps:2", "c"}}};
  }

  static DenseTensors Tensors() {
    static float element = 0;
    DenseTensors tensors;
    tensors.values.push_back(absl::MakeSpan(&element, 1));
    tensors.gradients.push_back(absl::MakeSpan(&element, 1));
    return tensors;
  }

  // Scans: two rows a shard, one a message: key 10 * shard + row, its value
  // half of that, `floats_` times.
  FakePs::Answer Serve(uint32_t shard, const FakePs::Call& call) {
    if (call.method == "BeginCut" && shard == 2 && refusals_-- > 0) {
      return {.status = ToGrpcStatus(refusal_)};
    }
    if (call.method == "EndCut") return {.status = ToGrpcStatus(end_refusal_)};
    if (call.method != "ScanTable") return {};
    const auto request = call.As<ScanTableRequest>();
    EXPECT_EQ(request.header().table(), 4u);
    const int row = request.header().cursor().empty() ? 0 : 1;
    const int64_t key = 10 * shard + row;
    ScanTableResponse response;
    response.mutable_header()->set_rows(1);
    if (row == 0) response.mutable_header()->set_next_cursor("next");
    response.mutable_payload()->append(reinterpret_cast<const char*>(&key),
                                       sizeof(key));
    const float value = static_cast<float>(key) / 2;
    for (int i = 0; i < floats_; ++i) {
      response.mutable_payload()->append(reinterpret_cast<const char*>(&value),
                                         sizeof(value));
    }
    return {.response = response.SerializeAsString()};
  }

  // Keys, as a scan gives them.
  absl::Status Scan(std::vector<int64_t>* keys) {
    return cuts_.ScanTable(
        /*table=*/4, /*dim=*/2, /*cut_id=*/9, /*clock=*/8,
        [&](absl::Span<const int64_t> found, absl::Span<const float> values) {
          for (size_t i = 0; i < found.size(); ++i) {
            keys->push_back(found[i]);
            EXPECT_EQ(values[2 * i], static_cast<float>(found[i]) / 2);
          }
          return sink_status_;
        });
  }

  std::atomic<int> refusals_{0};  // of shard 2
  absl::Status refusal_;
  absl::Status end_refusal_;
  int floats_ = 2;
  absl::Status sink_status_;
  ClientParts parts_;
  std::optional<CutCoordinator> coordinator_;
  CutCalls cuts_;
};

TEST_F(CutCallsTest, ACutHasAClockOfEachWorkerOnEachShardThatTakesPart) {
  ASSERT_OK_AND_ASSIGN(
      const std::vector<int64_t> agreed,
      cuts_.Begin({.id = 9, .use = CutUse::kCheckpoint, .clocks = {8, 9, 8}},
                  absl::Seconds(40)));
  EXPECT_THAT(agreed, ElementsAre(8, 9, 8));
  ASSERT_EQ(cuts_.End(9, 8), absl::OkStatus());
  EXPECT_THAT(parts_.MethodsOf(1), IsEmpty());
  for (const uint32_t shard : {0u, 2u}) {
    ASSERT_THAT(parts_.MethodsOf(shard), ElementsAre("BeginCut", "EndCut"));
    const auto begin = parts_.CallsOf(shard)[0].As<BeginCutRequest>();
    EXPECT_EQ(begin.caller().rank(), 1u);
    EXPECT_EQ(begin.cut_id(), 9u);
    EXPECT_THAT(begin.clocks(), ElementsAre(8, 9, 8));
    EXPECT_EQ(begin.purpose(), CHECKPOINT_STATE);
    EXPECT_EQ(begin.hold_seconds(), 40);
    const auto end = parts_.CallsOf(shard)[1].As<EndCutRequest>();
    EXPECT_EQ(end.cut_id(), 9u);
  }
}

TEST_F(CutCallsTest, ACutThatAShardIsPastIsRaised) {
  refusals_ = 1;
  refusal_ = WithSmallestCut(absl::OutOfRangeError("past"), {3, 12, 0});
  ASSERT_OK_AND_ASSIGN(
      const std::vector<int64_t> agreed,
      cuts_.Begin({.id = 9, .clocks = {8, 8, 8}}, absl::Seconds(40)));
  EXPECT_THAT(agreed, ElementsAre(8, 12, 8));
  for (const uint32_t shard : {0u, 2u}) {
    ASSERT_THAT(parts_.MethodsOf(shard),
                ElementsAre("BeginCut", "EndCut", "BeginCut"));
    EXPECT_EQ(parts_.CallsOf(shard)[1].As<EndCutRequest>().cut_id(), 9u);
    const auto raised = parts_.CallsOf(shard)[2].As<BeginCutRequest>();
    EXPECT_THAT(raised.clocks(), ElementsAre(8, 12, 8));
    EXPECT_EQ(raised.cut_id(), cuts_.WireId(9));
  }
  EXPECT_NE(cuts_.WireId(9), 9u);
  EXPECT_EQ(cuts_.WireId(10), 10u) << "another member's";
  ASSERT_OK(cuts_.End(9, 8));
  EXPECT_NE(parts_.CallsOf(2)[3].As<EndCutRequest>().cut_id(), 9u);
}

// After a change of the routing the calls go to other shards.
TEST_F(CutCallsTest, LaterShardsKnowARaisedCutByItsLaterId) {
  refusals_ = 1;
  refusal_ = WithSmallestCut(absl::OutOfRangeError("past"), {3, 12, 0});
  ASSERT_OK(
      cuts_.Begin({.id = 9, .clocks = {8, 8, 8}}, absl::Seconds(40)).status());
  const uint64_t id = cuts_.WireId(9);
  CutCalls later(Calling({1}), parts_.context().headers, &parts_.calls(),
                 &coordinator_);
  EXPECT_EQ(later.WireId(9), id);
  ASSERT_OK(later.End(9, 8));
  ASSERT_THAT(parts_.MethodsOf(1), ElementsAre("EndCut"));
  EXPECT_EQ(parts_.CallsOf(1)[0].As<EndCutRequest>().cut_id(), id);
  EXPECT_EQ(later.WireId(9), 9u) << "it has ended";
}

TEST_F(CutCallsTest, ACutThatIsUnderWayGoesOnWithLaterShards) {
  refusals_ = 1;
  refusal_ = WithRoutingVersion(absl::AbortedError("elsewhere"), 2);
  EXPECT_EQ(cuts_.Begin({.id = 9, .clocks = {8, 8, 8}}, absl::Seconds(40))
                .status()
                .code(),
            absl::StatusCode::kAborted);
  ClientParts other(
      *BlockMap::Create({{"w", 1}}, kShards), Tensors(),
      [](uint32_t, const FakePs::Call&) { return FakePs::Answer(); });
  CutCalls later(Calling({1, 2}), other.context().headers, &other.calls(),
                 &coordinator_);
  ASSERT_OK_AND_ASSIGN(
      const std::vector<int64_t> agreed,
      later.Begin({.id = 9, .clocks = {8, 8, 8}}, absl::Seconds(40)));
  EXPECT_THAT(agreed, ElementsAre(8, 8, 8));
  for (const uint32_t shard : {1u, 2u}) {
    ASSERT_THAT(other.MethodsOf(shard), ElementsAre("BeginCut"));
    EXPECT_EQ(other.CallsOf(shard)[0].As<BeginCutRequest>().cut_id(), 9u);
  }
}

// Values that were read at the cut are then of no single state.
TEST_F(CutCallsTest, ACutThatLaterShardsHaveGivenUpEndsWithTheirRefusal) {
  ASSERT_OK(
      cuts_.Begin({.id = 9, .clocks = {8, 8, 8}}, absl::Seconds(40)).status());
  end_refusal_ = absl::FailedPreconditionError("cut 9 was abandoned");
  CutCalls later(Calling({1, 2}), parts_.context().headers, &parts_.calls(),
                 &coordinator_);
  const absl::Status ended = later.End(9, 8);
  EXPECT_EQ(ended.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(ended.message()), HasSubstr("9 was abandoned"));
}

TEST_F(CutCallsTest, ACutThatIsRefusedEndsNothingElse) {
  refusals_ = 1;
  refusal_ = absl::UnimplementedError("no snapshots");
  const absl::Status refused =
      cuts_.Begin({.id = 9, .clocks = {8, 8, 8}}, absl::Seconds(40)).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("job j-7: the epoch cut: ps:2 at c: no snap"));
  EXPECT_THAT(parts_.MethodsOf(0), ElementsAre("BeginCut", "EndCut"));
  EXPECT_OK(cuts_.ReportActivity(8, "going on", 1, 2));
  EXPECT_OK(
      cuts_.Begin({.id = 10, .clocks = {9, 9, 9}}, absl::Seconds(40)).status());
}

TEST_F(CutCallsTest, CancelEndsTheWaitForRoom) {
  refusals_ = 1'000'000;
  refusal_ = WithSmallestCut(absl::FailedPreconditionError("two are announced"),
                             {0, 0, 0});
  std::thread cancels([&] {
    EXPECT_TRUE(
        Eventually(absl::Seconds(60), [&] { return refusals_ < 999'997; }));
    parts_.calls().Cancel(absl::CancelledError("enough"));
  });
  EXPECT_EQ(
      cuts_.Begin({.id = 9, .clocks = {8, 8, 8}}, absl::Seconds(40)).status(),
      absl::CancelledError("enough"));
  cancels.join();
}

TEST_F(CutCallsTest, AnActivitySaysHowFarItIs) {
  ASSERT_EQ(cuts_.ReportActivity(8, "evaluating", 30, 100), absl::OkStatus());
  ASSERT_THAT(parts_.MethodsOf(2), ElementsAre("ReportActivity"));
  const auto request = parts_.CallsOf(2)[0].As<ActivityRequest>();
  EXPECT_EQ(request.clock(), 8);
  EXPECT_EQ(request.what(), "evaluating");
  EXPECT_EQ(request.done(), 30u);
  EXPECT_EQ(request.total(), 100u);
}

TEST_F(CutCallsTest, AScanGivesTheRowsOfAllShards) {
  std::vector<int64_t> keys;
  ASSERT_EQ(Scan(&keys), absl::OkStatus());
  EXPECT_THAT(keys, ElementsAre(0, 1, 10, 11, 20, 21));
}

TEST_F(CutCallsTest, AScanEndsWithTheSinksError) {
  sink_status_ = absl::CancelledError("enough");
  std::vector<int64_t> keys;
  EXPECT_EQ(Scan(&keys), sink_status_);
  EXPECT_THAT(keys, ElementsAre(0));
}

TEST_F(CutCallsTest, RowsOfAnotherSizeAreAnErrorOfThatShard) {
  floats_ = 3;
  std::vector<int64_t> keys;
  const absl::Status status = Scan(&keys);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("ps:0 at a, ScanTable of table 4"),
                    HasSubstr("3 values for 1 rows of 2")));
  EXPECT_THAT(keys, IsEmpty());
}

}  // namespace
}  // namespace syncline::worker
