// Goal: the rows of a step go to their shard and those of the next one come
// back, in as few messages as fit, and a row that came too old is read again.
// Method: a fake ps that answers each pull with one value, and with a clock
// that the test sets.

#include "worker/client/row_steps.h"

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "common/wire/frame.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/client_parts.h"

namespace syncline::worker {
namespace {

using syncline::testing::ClientParts;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr float kAnswered = 4;

std::unique_ptr<RowBatch> MakeRows(int64_t dim, std::vector<int64_t> ids) {
  RowBatch::Options options;
  options.name = "t";
  options.dim = dim;
  options.samples_max = 1;
  options.lookups = {
      {.feed = 0, .ids_per_sample = static_cast<int64_t>(ids.size())}};
  options.with_gradients = true;
  auto rows = std::make_unique<RowBatch>(options, *TableMap::Create(256, 1));
  Batch batch;
  batch.size = 1;
  batch.int_feeds = {std::move(ids)};
  rows->Collect(batch);
  rows->ClearGradients();
  return rows;
}

class RowStepsTest : public ::testing::Test {
 protected:
  // Shard 0 has a dense block, no other has one.
  void SetUpParts(int64_t dim, uint32_t shards = 1) {
    dim_ = dim;
    DenseTensors tensors;
    tensors.values.push_back(absl::MakeSpan(&dense_, 1));
    tensors.gradients.push_back(absl::MakeSpan(&dense_, 1));
    parts_ = std::make_unique<ClientParts>(
        *BlockMap::Create({{"w", 1}}, shards), std::move(tensors),
        [this](uint32_t, const FakePs::Call& call) { return Serve(call); });
    rows_ = std::make_unique<RowSteps>(&parts_->context());
  }

  FakePs::Answer Serve(const FakePs::Call& call) const {
    if (call.method == "PushPull") {
      return Values(call.As<PushPullRequest>().header().pull());
    }
    if (call.method == "Pull") {
      return Values(call.As<PullRequest>().header());
    }
    return {};
  }
  FakePs::Answer Values(const PullHeader& pull) const {
    PullResponse response;
    response.mutable_header()->set_min_clock(min_clock_);
    for (const TableRows& asked : pull.tables()) {
      *response.mutable_header()->add_tables() = asked;
      const std::vector<float> values(asked.rows() * static_cast<size_t>(dim_),
                                      kAnswered);
      response.mutable_payload()->append(
          reinterpret_cast<const char*>(values.data()),
          values.size() * sizeof(float));
    }
    return {.response = response.SerializeAsString()};
  }

  static std::vector<float> ValuesOf(RowBatch* rows) {
    return {rows->value(0), rows->value(0) + rows->keys().size() * rows->dim()};
  }

  float dense_ = 0;
  int64_t dim_ = 0;
  std::atomic<int64_t> min_clock_{0};
  std::unique_ptr<ClientParts> parts_;
  std::unique_ptr<RowSteps> rows_;
};

TEST_F(RowStepsTest, AStepsRowsAndTheNextOnesShareAMessage) {
  SetUpParts(/*dim=*/2);
  const auto current = MakeRows(2, {1, 2, 3});
  const auto next = MakeRows(2, {3, 4});
  RowBatch* const pushed[] = {current.get()};
  RowBatch* const wanted[] = {next.get()};
  parts_->step().Begin({.clock = 6, .sample_count = 1, .rows = pushed});
  ASSERT_EQ(rows_->Send(0, wanted), absl::OkStatus());
  ASSERT_EQ(parts_->calls().Wait(), absl::OkStatus());
  ASSERT_THAT(parts_->MethodsOf(0), ElementsAre("PushPull"));
  const auto request = parts_->CallsOf(0)[0].As<PushPullRequest>();
  ASSERT_EQ(request.header().push().tables_size(), 1);
  EXPECT_EQ(request.header().push().tables(0).rows(), 3u);
  EXPECT_EQ(request.header().pull().clock(), 7);
  EXPECT_EQ(request.header().pull().tables(0).rows(), 2u);
  EXPECT_THAT(ValuesOf(next.get()), Each(kAnswered));
  EXPECT_GT(parts_->pushed_bytes(), 0u);
  EXPECT_FALSE(rows_->PullStaleAgain());
}

TEST_F(RowStepsTest, RowsAndKeysThatDoNotFitTogetherGoOneByOne) {
  // One row fills a message.
  const auto dim =
      static_cast<int64_t>((kChunkBytesMax - sizeof(int64_t)) / sizeof(float));
  SetUpParts(dim);
  const auto current = MakeRows(dim, {1});
  const auto next = MakeRows(dim, {2});
  RowBatch* const pushed[] = {current.get()};
  RowBatch* const wanted[] = {next.get()};
  parts_->step().Begin({.clock = 6, .sample_count = 1, .rows = pushed});
  ASSERT_EQ(rows_->Send(0, wanted), absl::OkStatus());
  ASSERT_EQ(parts_->calls().Wait(), absl::OkStatus());
  EXPECT_THAT(parts_->MethodsOf(0), UnorderedElementsAre("Push", "Pull"));
  EXPECT_EQ(next->value(0)[dim - 1], kAnswered);
}

TEST_F(RowStepsTest, ASlotLargerThanAMessageIsRefusedBeforeAnythingIsSent) {
  const auto dim = static_cast<int64_t>(kChunkBytesMax / sizeof(float));
  SetUpParts(dim);
  const auto current = MakeRows(dim, {1});
  RowBatch* const pushed[] = {current.get()};
  parts_->step().Begin({.clock = 0, .sample_count = 1, .rows = pushed});
  EXPECT_EQ(rows_->Send(0, {}).code(), absl::StatusCode::kInvalidArgument);
  ASSERT_EQ(parts_->calls().Wait(), absl::OkStatus());
  EXPECT_THAT(parts_->MethodsOf(0), IsEmpty());
}

TEST_F(RowStepsTest, AShardWithoutRowsOrBlocksLearnsThatTheStepIsOver) {
  SetUpParts(/*dim=*/1, /*shards=*/2);
  parts_->step().Begin({.clock = 2, .sample_count = 5});
  ASSERT_EQ(rows_->Send(1, {}), absl::OkStatus());
  ASSERT_EQ(parts_->calls().Wait(), absl::OkStatus());
  ASSERT_THAT(parts_->MethodsOf(1), ElementsAre("Push"));
  const auto push = parts_->CallsOf(1)[0].As<PushRequest>();
  EXPECT_EQ(push.header().sample_count(), 5u);
  EXPECT_EQ(push.header().blocks_in_clock(), 0u);
}

TEST_F(RowStepsTest, AShardWithBlocksIsClosedByThem) {
  SetUpParts(/*dim=*/1);
  parts_->step().Begin({.clock = 2, .sample_count = 5});
  ASSERT_EQ(rows_->Send(0, {}), absl::OkStatus());
  ASSERT_EQ(parts_->calls().Wait(), absl::OkStatus());
  EXPECT_THAT(parts_->MethodsOf(0), IsEmpty());
}

TEST_F(RowStepsTest, ARowThatCameTooOldIsReadAgain) {
  SetUpParts(/*dim=*/1);
  const auto next = MakeRows(1, {1, 2, 3});
  next->WantEarly([](int64_t key) { return key != 2; });
  RowBatch* const wanted[] = {next.get()};
  parts_->step().Begin({.clock = 6, .sample_count = 1});
  min_clock_ = 4;
  rows_->PullEarly(wanted, /*min_clock=*/5);
  ASSERT_EQ(parts_->calls().Wait(), absl::OkStatus());
  EXPECT_EQ(parts_->pulled_bytes(), 0u);
  min_clock_ = 6;
  ASSERT_TRUE(rows_->PullStaleAgain());
  ASSERT_EQ(parts_->calls().Wait(), absl::OkStatus());
  EXPECT_EQ(parts_->pulled_bytes(), 2 * sizeof(float));
  EXPECT_FALSE(rows_->PullStaleAgain());
  const auto calls = parts_->CallsOf(0);
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(calls[0].As<PullRequest>().header().clock(), 6);
  EXPECT_EQ(calls[1].As<PullRequest>().header().clock(), 7);
  EXPECT_EQ(calls[1].As<PullRequest>().header().tables(0).rows(), 2u);
}

TEST_F(RowStepsTest, ARowThatIsYoungEnoughIsReadOnce) {
  SetUpParts(/*dim=*/1);
  const auto next = MakeRows(1, {1});
  next->WantEarly([](int64_t) { return true; });
  RowBatch* const wanted[] = {next.get()};
  parts_->step().Begin({.clock = 6, .sample_count = 1});
  min_clock_ = 5;
  rows_->PullEarly(wanted, /*min_clock=*/5);
  ASSERT_EQ(parts_->calls().Wait(), absl::OkStatus());
  EXPECT_FALSE(rows_->PullStaleAgain());
  EXPECT_EQ(next->value(0)[0], kAnswered);
  EXPECT_EQ(next->as_of(0), 5);
}

}  // namespace
}  // namespace syncline::worker
