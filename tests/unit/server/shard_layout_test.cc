// Goal: a header is believed only where it fits the block map.
// Method: examples of every refusal on two shards, and the fields of what is
// accepted. Random bytes are the business of push_header_fuzz.

#include "server/shard_layout.h"

#include <limits>
#include <string>
#include <vector>

#include "common/wire/frame.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Blocks of shard 0: 0, 3 (1024 and 8 elements); of shard 1: 1, 2.
ShardLayout Layout(uint32_t shard) {
  const std::vector<TensorSize> tensors = {{"a", 2048}, {"b", 7}, {"c", 8}};
  ShardLayout layout(*BlockMap::Create(tensors, 2), shard);
  return layout;
}

std::string Why(const absl::Status& status) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

PushHeader Push(std::vector<uint32_t> blocks) {
  PushHeader header;
  header.set_clock(4);
  header.set_sample_count(32);
  header.set_blocks_in_clock(2);
  header.mutable_blocks()->Add(blocks.begin(), blocks.end());
  return header;
}

TEST(ShardLayoutTest, KnowsItsBlocks) {
  EXPECT_THAT(Layout(0).ids(), ElementsAre(0, 3));
  EXPECT_THAT(Layout(0).counts(), ElementsAre(1024, 8));
  EXPECT_THAT(Layout(1).ids(), ElementsAre(1, 2));
  EXPECT_THAT(Layout(0).Offsets({0, 1}), ElementsAre(0, 1024, 1032));
  EXPECT_THAT(Layout(0).Offsets({}), ElementsAre(0));
}

TEST(ShardLayoutTest, TakesOverWhatFits) {
  PushHeader header = Push({0, 3});
  header.set_finished(true);
  header.set_squared_norm(2.5);
  const auto facts = Layout(0).CheckPush(header, 1032 * 4);
  ASSERT_TRUE(facts.ok()) << facts.status();
  EXPECT_THAT(facts->blocks, ElementsAre(0, 1));
  EXPECT_EQ(facts->clock, 4);
  EXPECT_EQ(facts->sample_count, 32u);
  EXPECT_EQ(facts->blocks_in_clock, 2u);
  EXPECT_TRUE(facts->finished);
  EXPECT_EQ(facts->squared_norm, 2.5);

  PullHeader pull;
  pull.set_clock(5);
  pull.set_wait_seconds(1);
  pull.set_cut_id(9);
  pull.add_blocks(3);
  const auto wanted = Layout(0).CheckPull(pull);
  ASSERT_TRUE(wanted.ok()) << wanted.status();
  EXPECT_THAT(wanted->blocks, ElementsAre(1));
  EXPECT_EQ(wanted->clock, 5);
  EXPECT_EQ(wanted->cut_id, 9u);
}

TEST(ShardLayoutTest, RefusesBlocksAndSizes) {
  const ShardLayout layout = Layout(0);
  const auto why = [&](std::vector<uint32_t> blocks, size_t bytes) {
    return Why(layout.CheckPush(Push(std::move(blocks)), bytes).status());
  };
  EXPECT_THAT(why({4}, 0), HasSubstr("block 4 does not exist, there are 4"));
  EXPECT_THAT(why({1}, 0), HasSubstr("belongs to ps rank 1"));
  EXPECT_THAT(why({3, 0}, 0), HasSubstr("block 0 comes after block 3"));
  EXPECT_THAT(why({3, 3}, 0), HasSubstr("must be ascending"));
  EXPECT_THAT(why({0}, 4095), HasSubstr("has 4095 bytes, its 1 blocks have"));
  EXPECT_THAT(why({}, 4), HasSubstr("has 4 bytes, its 0 blocks have 0"));
}

TEST(ShardLayoutTest, RefusesNumbers) {
  const ShardLayout layout = Layout(0);
  PushHeader push = Push({});
  push.set_clock(-1);
  EXPECT_THAT(Why(layout.CheckPush(push, 0).status()), HasSubstr("push.clock"));
  push = Push({});
  push.set_sample_count((uint64_t{1} << 40) + 1);
  EXPECT_THAT(Why(layout.CheckPush(push, 0).status()),
              HasSubstr("push.sample_count"));
  for (const double norm : {-1.0, std::numeric_limits<double>::quiet_NaN()}) {
    push = Push({});
    push.set_squared_norm(norm);
    EXPECT_THAT(Why(layout.CheckPush(push, 0).status()),
                HasSubstr("push.squared_norm"));
  }
  for (const double wait :
       {0.0, -1.0, 1e7, std::numeric_limits<double>::quiet_NaN(),
        std::numeric_limits<double>::infinity()}) {
    PullHeader pull;
    pull.set_wait_seconds(wait);
    EXPECT_THAT(Why(layout.CheckPull(pull).status()),
                HasSubstr("pull.wait_seconds"));
  }
  PullHeader pull;
  pull.set_wait_seconds(1);
  pull.set_clock(-7);
  EXPECT_THAT(Why(layout.CheckPull(pull).status()), HasSubstr("pull.clock"));
  InitHeader init;
  init.set_total_clocks(-2);
  EXPECT_THAT(Why(layout.CheckInit(init, 0).status()),
              HasSubstr("total_clocks"));
}

TEST(ShardLayoutTest, AnswersFitIntoAMessage) {
  const ShardLayout layout(
      *BlockMap::Create(std::vector<TensorSize>{{"a", 64 << 20}}, 1), 0);
  PullHeader pull;
  pull.set_wait_seconds(1);
  for (uint32_t block = 0; block < 3; ++block) pull.add_blocks(block);
  EXPECT_TRUE(layout.CheckPull(pull).ok());
  pull.add_blocks(3);  // 4 MiB
  EXPECT_THAT(Why(layout.CheckPull(pull).status()),
              HasSubstr("at most 4128768 fit into a message"));
}

}  // namespace
}  // namespace syncline
