// Goal: every push of a step says the same of it, and says how much of the step
// its shard is to wait for. Method: a map of three tensors on two shards and a
// batch of rows of one shard; headers read field by field.

#include "worker/client/pushed_step.h"

#include <memory>
#include <string>

#include "common/wire/frame.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline::worker {
namespace {

using ::testing::ElementsAre;

class PushedStepTest : public ::testing::Test {
 protected:
  // Two blocks on one shard, one on the other.
  PushedStepTest()
      : map_(*BlockMap::Create({{"a", 6}, {"b", 2}, {"c", 1}}, 2)) {
    RowBatch::Options options;
    options.name = "t";
    options.dim = 1;
    options.samples_max = 1;
    options.lookups = {{.feed = 0, .ids_per_sample = 3}};
    options.with_gradients = true;
    rows_ = std::make_unique<RowBatch>(options, *TableMap::Create(256, 2));
    Batch batch;
    batch.size = 1;
    batch.int_feeds = {{1, 2, 3}};
    rows_->Collect(batch);
  }

  uint32_t ShardWithBlocks(size_t count) const {
    return map_.shard_blocks(0).size() == count ? 0 : 1;
  }

  const BlockMap map_;
  const HeaderEncoder headers_{
      {.job_id = "j", .rank = 2, .incarnation = 9, .routing_version = 1},
      RegimeSchedule(TrainingRegime{.wire_type = ElementType::kBfloat16}),
      absl::Seconds(60)};
  std::unique_ptr<RowBatch> rows_;
  PushedStep step_{&headers_, &map_};
};

TEST_F(PushedStepTest, AHeaderHasTheStepAndItsBlocks) {
  step_.Begin({.clock = 7, .sample_count = 32, .finished = true});
  step_.SetSquaredNorm(2.5);
  const uint32_t blocks[] = {1, 2};
  const PushHeader header = step_.Header(ShardWithBlocks(2), blocks);
  EXPECT_THAT(header.blocks(), ElementsAre(1, 2));
  EXPECT_EQ(header.caller().rank(), 2u);
  EXPECT_EQ(header.wire_type(), WIRE_BFLOAT16);
  EXPECT_EQ(header.clock(), 7);
  EXPECT_EQ(header.sample_count(), 32u);
  EXPECT_EQ(header.blocks_in_clock(), 2u);
  EXPECT_EQ(header.squared_norm(), 2.5);
  EXPECT_TRUE(header.finished());
  EXPECT_FALSE(header.non_finite());
}

TEST_F(PushedStepTest, AShardWaitsForItsSlotsOfRowsToo) {
  RowBatch* const tables[] = {rows_.get()};
  step_.Begin({.clock = 1, .sample_count = 1, .rows = tables});
  for (const uint32_t shard : {0u, 1u}) {
    EXPECT_EQ(
        step_.Header(shard, {}).blocks_in_clock(),
        map_.shard_blocks(shard).size() + rows_->ShardSlots(shard).size());
  }
}

TEST_F(PushedStepTest, AnAbandonedStepHasNoSamplesAndNothingToWaitFor) {
  RowBatch* const tables[] = {rows_.get()};
  step_.Begin({.clock = 3, .sample_count = 8, .rows = tables});
  EXPECT_TRUE(step_.has_gradient());
  step_.Abandon();
  EXPECT_FALSE(step_.has_gradient());
  EXPECT_TRUE(step_.abandoned());
  EXPECT_TRUE(step_.rows().empty());
  const PushHeader header = step_.Header(0, {});
  EXPECT_EQ(header.clock(), 3);
  EXPECT_EQ(header.sample_count(), 0u);
  EXPECT_EQ(header.blocks_in_clock(), 0u);
  EXPECT_TRUE(header.non_finite());
}

TEST_F(PushedStepTest, TheNextStepStartsAfresh) {
  step_.Begin({.clock = 3, .sample_count = 8});
  step_.SetSquaredNorm(4);
  step_.Abandon();
  step_.Begin({.clock = 4, .sample_count = 8});
  EXPECT_FALSE(step_.abandoned());
  EXPECT_EQ(step_.next_clock(), 5);
  EXPECT_EQ(step_.Header(0, {}).squared_norm(), 0);
  EXPECT_FALSE(step_.Header(0, {}).non_finite());
}

TEST_F(PushedStepTest, ACloseIsAPushWithoutBlocks) {
  step_.Begin({.clock = 5, .sample_count = 8});
  const FanoutCall::Call call = step_.Close(1);
  EXPECT_EQ(call.shard, 1u);
  EXPECT_EQ(std::string(call.method), "Push");
  EXPECT_EQ(call.clock, 5);
  EXPECT_EQ(call.bytes, 0u);
  PushHeader header;
  PayloadView payload;
  ASSERT_TRUE(DecodeFrame(call.request, &header, &payload).ok());
  EXPECT_EQ(header.sample_count(), 8u);
  EXPECT_EQ(header.blocks_size(), 0);
  EXPECT_EQ(payload.size_bytes(), 0u);
}

TEST_F(PushedStepTest, ALeasedStepClosesThoseBeforeTheNext) {
  step_.Begin({.clock = 7, .sample_count = 32});
  EXPECT_EQ(step_.next_clock(), 8);
  EXPECT_EQ(step_.Header(0, {}).close_until(), 0);
  step_.Begin({.clock = 7, .sample_count = 32, .next_clock = 12});
  EXPECT_EQ(step_.next_clock(), 12);
  EXPECT_EQ(step_.Header(0, {}).close_until(), 12);
  step_.Abandon();
  EXPECT_EQ(step_.Header(0, {}).close_until(), 12);
  step_.Begin({.clock = 7, .next_clock = 30, .finished = true});
  EXPECT_EQ(step_.Header(0, {}).close_until(), 30);
}

TEST_F(PushedStepTest, AStepInThePlaceOfALostWorkerNamesIt) {
  step_.Begin({.clock = 7, .sample_count = 32});
  EXPECT_FALSE(step_.Header(0, {}).has_for_rank());
  step_.Begin({.clock = 7, .sample_count = 32, .pull = false, .for_rank = 2});
  EXPECT_TRUE(step_.Header(0, {}).has_for_rank());
  EXPECT_EQ(step_.Header(0, {}).for_rank(), 2u);
}

}  // namespace
}  // namespace syncline::worker
