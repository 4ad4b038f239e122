// Goal: each block of a step goes to its shard once and its value comes back,
// and a step without a gradient is closed on a shard all the same. Method: two
// fake ps that answer pulls with one value, three small tensors.

#include "worker/client/dense_steps.h"

#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/client_parts.h"

namespace syncline::worker {
namespace {

using syncline::testing::ClientParts;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr float kInitial = 1;
constexpr float kAnswered = 8;

class DenseStepsTest : public ::testing::Test {
 protected:
  // Shard 0 has one tensor, shard 1 two; a third shard has none.
  void SetUpParts(uint32_t shards = 2, size_t chunk_bytes = 1 << 20) {
    for (const size_t size : {6, 3, 2}) {
      values_.emplace_back(size, kInitial);
      gradients_.emplace_back(size);
      std::iota(gradients_.back().begin(), gradients_.back().end(), 1.0f);
    }
    DenseTensors tensors;
    for (size_t t = 0; t < values_.size(); ++t) {
      tensors.values.push_back(absl::MakeSpan(values_[t]));
      tensors.gradients.push_back(gradients_[t]);
    }
    map_ = *BlockMap::Create({{"a", 6}, {"b", 3}, {"c", 2}}, shards);
    parts_ = std::make_unique<ClientParts>(
        *map_, std::move(tensors),
        [this](uint32_t, const FakePs::Call& call) { return Serve(call); },
        chunk_bytes);
    dense_ = std::make_unique<DenseSteps>(&parts_->context());
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
    response.mutable_header();  // it is there, though empty
    for (const uint32_t id : pull.blocks()) {
      response.mutable_header()->add_blocks(id);
      const std::vector<float> values(
          static_cast<size_t>(map_->blocks()[id].count), kAnswered);
      response.mutable_payload()->append(
          reinterpret_cast<const char*>(values.data()),
          values.size() * sizeof(float));
    }
    return {.response = response.SerializeAsString()};
  }

  void Begin(const ParameterExchange::Step& step) {
    parts_->step().Begin(step);
    dense_->BeginStep();
  }

  std::vector<std::vector<float>> values_;
  std::vector<std::vector<float>> gradients_;
  std::optional<BlockMap> map_;
  std::unique_ptr<ClientParts> parts_;
  std::unique_ptr<DenseSteps> dense_;
};

TEST_F(DenseStepsTest, SmallTensorsOfAShardShareAMessageBothWays) {
  SetUpParts();
  Begin({.clock = 4, .sample_count = 2});
  for (const uint32_t tensor : {2u, 1u, 0u}) dense_->Send(tensor);
  EXPECT_EQ(parts_->pushed_bytes(), 0u) << "none is worth a message";
  dense_->SendRest();
  ASSERT_EQ(parts_->calls().Wait(), absl::OkStatus());
  std::set<uint32_t> seen;
  for (const uint32_t shard : {0u, 1u}) {
    ASSERT_THAT(parts_->MethodsOf(shard), ElementsAre("PushPull"));
    const auto request = parts_->CallsOf(shard)[0].As<PushPullRequest>();
    const PushHeader& push = request.header().push();
    EXPECT_EQ(push.clock(), 4);
    EXPECT_EQ(request.header().pull().clock(), 5);
    EXPECT_EQ(push.blocks_in_clock(), map_->shard_blocks(shard).size());
    size_t bytes = 0;
    for (const uint32_t id : push.blocks()) {
      seen.insert(id);
      const auto* const payload =
          reinterpret_cast<const float*>(request.payload().data() + bytes);
      EXPECT_EQ(payload[0], 1.0f);
      EXPECT_EQ(payload[1], 2.0f);
      bytes += static_cast<size_t>(map_->blocks()[id].count) * sizeof(float);
    }
    EXPECT_EQ(request.payload().size(), bytes);
  }
  EXPECT_THAT(seen, SizeIs(3));
  for (const auto& values : values_) EXPECT_THAT(values, Each(kAnswered));
  EXPECT_EQ(parts_->pushed_bytes(), 11 * sizeof(float));
  EXPECT_EQ(parts_->pulled_bytes(), 11 * sizeof(float));
}

TEST_F(DenseStepsTest, AStepThatPullsNothingPushesAlone) {
  SetUpParts();
  Begin({.clock = 4, .sample_count = 2, .pull = false});
  for (const uint32_t tensor : {0u, 1u, 2u}) dense_->Send(tensor);
  dense_->SendRest();
  ASSERT_EQ(parts_->calls().Wait(), absl::OkStatus());
  EXPECT_THAT(parts_->MethodsOf(0), ElementsAre("Push"));
  EXPECT_THAT(parts_->MethodsOf(1), ElementsAre("Push"));
  for (const auto& values : values_) EXPECT_THAT(values, Each(kInitial));
}

TEST_F(DenseStepsTest, AStepWithoutAGradientIsClosedAndStillReads) {
  SetUpParts();
  Begin({.clock = 4});
  dense_->StartEmptyClose(1);
  ASSERT_EQ(parts_->calls().Wait(), absl::OkStatus());
  EXPECT_THAT(parts_->MethodsOf(0), IsEmpty());
  EXPECT_THAT(parts_->MethodsOf(1),
              ::testing::UnorderedElementsAre("Push", "Pull"));
  for (const FakePs::Call& call : parts_->CallsOf(1)) {
    if (call.method == "Pull") {
      EXPECT_EQ(call.As<PullRequest>().header().clock(), 5);
    } else {
      EXPECT_EQ(call.As<PushRequest>().header().sample_count(), 0u);
    }
  }
  Begin({.clock = 5, .pull = false});
  dense_->StartEmptyClose(0);
  ASSERT_EQ(parts_->calls().Wait(), absl::OkStatus());
  EXPECT_THAT(parts_->MethodsOf(0), ElementsAre("Push"));
}

TEST_F(DenseStepsTest, InitialValuesGoOutWhole) {
  SetUpParts();
  dense_->StartInit(/*total_clocks=*/12);
  ASSERT_EQ(parts_->calls().Wait(), absl::OkStatus());
  size_t bytes = 0;
  for (const uint32_t shard : {0u, 1u}) {
    for (const FakePs::Call& call : parts_->CallsOf(shard)) {
      const auto request = call.As<InitRequest>();
      EXPECT_EQ(request.header().total_clocks(), 12);
      bytes += request.payload().size();
    }
  }
  EXPECT_EQ(bytes, 11 * sizeof(float));
  EXPECT_EQ(parts_->pushed_bytes(), 0u) << "they are no gradients";
}

TEST_F(DenseStepsTest, AShardWithoutBlocksIsOnlyWaitedFor) {
  SetUpParts(/*shards=*/4);
  uint32_t without = 0;
  while (!map_->shard_blocks(without).empty()) ++without;
  dense_->StartPulls(without, /*clock=*/3, /*cut_id=*/0);
  ASSERT_EQ(parts_->calls().Wait(), absl::OkStatus());
  EXPECT_THAT(parts_->MethodsOf(without), IsEmpty());
  dense_->StartEmptyPull(without, /*clock=*/3, /*cut_id=*/6);
  ASSERT_EQ(parts_->calls().Wait(), absl::OkStatus());
  ASSERT_THAT(parts_->MethodsOf(without), ElementsAre("Pull"));
  const auto pull = parts_->CallsOf(without)[0].As<PullRequest>();
  EXPECT_EQ(pull.header().blocks_size(), 0);
  EXPECT_EQ(pull.header().cut_id(), 6u);
}

TEST_F(DenseStepsTest, AMessageHasNoMoreThanItsLimit) {
  SetUpParts(/*shards=*/1, /*chunk_bytes=*/5 * sizeof(float));
  Begin({.clock = 0, .sample_count = 1});
  for (const uint32_t tensor : {0u, 1u, 2u}) dense_->Send(tensor);
  dense_->SendRest();
  ASSERT_EQ(parts_->calls().Wait(), absl::OkStatus());
  // Six elements are one block; the other two tensors fit into one message.
  EXPECT_THAT(parts_->MethodsOf(0), ElementsAre("PushPull", "PushPull"));
  for (const auto& values : values_) EXPECT_THAT(values, Each(kAnswered));
}

}  // namespace
}  // namespace syncline::worker
