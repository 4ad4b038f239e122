// Goal: a header is believed only where it fits the block map.
// Method: examples of every refusal on two shards, and the fields of what is
// accepted. Random bytes are the business of push_header_fuzz.

#include "server/shard/shard_layout.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "common/wire/frame.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/fakes/payloads.h"

namespace syncline::ps {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A job whose values travel in the type.
RegimeSchedule In(ElementType type) {
  return RegimeSchedule(TrainingRegime{.wire_type = type});
}

// Blocks of shard 0: 0, 3 (1024 and 8 elements); of shard 1: 1, 2.
ShardLayout Layout(uint32_t shard) {
  const std::vector<TensorSize> tensors = {{"a", 2048}, {"b", 7}, {"c", 8}};
  return ShardLayout(*BlockMap::Create(tensors, 2), shard);
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

TEST(ShardLayoutTest, APushIsInTheJobsWireType) {
  const std::vector<TensorSize> tensors = {{"a", 2048}};
  const ShardLayout narrow(*BlockMap::Create(tensors, 1), 0, {},
                           In(ElementType::kBfloat16));
  PushHeader push = Push({0, 1});
  push.set_wire_type(WIRE_BFLOAT16);
  EXPECT_TRUE(narrow.CheckPush(push, {nullptr, 2048 * 2}).ok());
  EXPECT_THAT(Why(narrow.CheckPush(push, {nullptr, 2048 * 4}).status()),
              HasSubstr("8192 bytes"));
  const ShardLayout wide(*BlockMap::Create(tensors, 1), 0);
  EXPECT_THAT(Why(wide.CheckPush(push, {nullptr, 2048 * 2}).status()),
              HasSubstr("push.wire_type is WIRE_BFLOAT16, the job's is "
                        "WIRE_FLOAT32"));
  for (const int other : {0, 1, 3, 99}) {
    push.set_wire_type(static_cast<WireType>(other));
    EXPECT_THAT(Why(narrow.CheckPush(push, {nullptr, 2048 * 2}).status()),
                HasSubstr("push.wire_type"));
  }
  push.clear_wire_type();
  EXPECT_TRUE(wide.CheckPush(push, {nullptr, 2048 * 4}).ok());
}

TEST(ShardLayoutTest, TheWireTypeIsThatOfTheClock) {
  const std::vector<TensorSize> tensors = {{"a", 2048}};
  RegimeSchedule regimes = In(ElementType::kBfloat16);
  ASSERT_TRUE(regimes.Add({.first_clock = 5}, 0).ok());  // float32
  const ShardLayout layout(*BlockMap::Create(tensors, 1), 0, {}, regimes);
  PushHeader push = Push({0, 1});
  push.set_clock(4);
  push.set_wire_type(WIRE_BFLOAT16);
  EXPECT_TRUE(layout.CheckPush(push, {nullptr, 2048 * 2}).ok());
  push.set_clock(5);
  EXPECT_THAT(Why(layout.CheckPush(push, {nullptr, 2048 * 2}).status()),
              HasSubstr("push.wire_type is WIRE_BFLOAT16, the job's is "
                        "WIRE_FLOAT32 at clock 5"));
  // A push of the old type, and the values of the next clock in the new one.
  PushPullHeader both;
  *both.mutable_push() = push;
  both.mutable_push()->set_clock(4);
  both.mutable_pull()->set_clock(5);
  both.mutable_pull()->set_wait_seconds(1);
  both.mutable_pull()->set_wire_type(WIRE_FLOAT32);
  CheckedPush pushed;
  CheckedPull pulled;
  EXPECT_TRUE(
      layout.CheckPushPull(both, {nullptr, 2048 * 2}, &pushed, &pulled).ok());
  EXPECT_EQ(pulled.facts.type, ElementType::kFloat32);
  both.mutable_pull()->set_wire_type(WIRE_FLOAT16);
  EXPECT_THAT(
      Why(layout.CheckPushPull(both, {nullptr, 2048 * 2}, &pushed, &pulled)),
      HasSubstr("pull.wire_type is WIRE_FLOAT16, the job's is WIRE_FLOAT32 at "
                "clock 5"));
}

TEST(ShardLayoutTest, TheCompressionIsThatOfTheClock) {
  const std::vector<TensorSize> tensors = {{"a", 2048}};
  RegimeSchedule regimes;
  ASSERT_TRUE(
      regimes
          .Add({.first_clock = 5,
                .compression = {.kind = GradientCompression::Kind::kTopK}},
               0)
          .ok());
  const ShardLayout layout(*BlockMap::Create(tensors, 1), 0, {}, regimes);
  PushHeader push = Push({0, 1});
  push.set_compression(CompressionSpec::TOP_K);
  push.add_block_bytes(100);
  push.add_block_bytes(200);
  push.set_clock(5);
  EXPECT_TRUE(layout.CheckPush(push, {nullptr, 300}).ok());
  push.set_clock(4);
  EXPECT_THAT(Why(layout.CheckPush(push, {nullptr, 300}).status()),
              HasSubstr("push.compression is TOP_K, the job's is NONE at clock "
                        "4"));
}

// A cut is read as it is.
TEST(ShardLayoutTest, APullIsInTheJobsWireTypeOrWhole) {
  const std::vector<TensorSize> tensors = {{"a", 2048}};
  const ShardLayout narrow(*BlockMap::Create(tensors, 1), 0, {},
                           In(ElementType::kFloat16));
  PullHeader pull;
  pull.set_wait_seconds(1);
  pull.mutable_blocks()->Add(0);
  for (const auto type : {WIRE_TYPE_UNSPECIFIED, WIRE_FLOAT32, WIRE_FLOAT16}) {
    pull.set_wire_type(type);
    const auto checked = narrow.CheckPull(pull, {});
    ASSERT_TRUE(checked.ok()) << checked.status();
    EXPECT_EQ(checked->facts.type, type == WIRE_FLOAT16
                                       ? ElementType::kFloat16
                                       : ElementType::kFloat32);
  }
  pull.set_wire_type(WIRE_BFLOAT16);
  EXPECT_THAT(Why(narrow.CheckPull(pull, {}).status()),
              HasSubstr("pull.wire_type is WIRE_BFLOAT16"));
}

TEST(ShardLayoutTest, TakesOverWhatFits) {
  PushHeader header = Push({0, 3});
  header.set_finished(true);
  header.set_squared_norm(2.5);
  const auto push = Layout(0).CheckPush(header, {nullptr, 1032 * 4});
  ASSERT_TRUE(push.ok()) << push.status();
  const PushFacts* const facts = &push->facts;
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
  const auto read = Layout(0).CheckPull(pull, {});
  ASSERT_TRUE(read.ok()) << read.status();
  const PullFacts* const wanted = &read->facts;
  EXPECT_THAT(wanted->blocks, ElementsAre(1));
  EXPECT_EQ(wanted->clock, 5);
  EXPECT_EQ(wanted->cut_id, 9u);
}

TEST(ShardLayoutTest, RefusesBlocksAndSizes) {
  const ShardLayout layout = Layout(0);
  const auto why = [&](std::vector<uint32_t> blocks, size_t bytes) {
    return Why(
        layout.CheckPush(Push(std::move(blocks)), {nullptr, bytes}).status());
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
  EXPECT_THAT(Why(layout.CheckPush(push, {}).status()),
              HasSubstr("push.clock"));
  push = Push({});
  push.set_sample_count((uint64_t{1} << 40) + 1);
  EXPECT_THAT(Why(layout.CheckPush(push, {}).status()),
              HasSubstr("push.sample_count"));
  push = Push({});
  push.set_non_finite(true);
  push.set_sample_count(1);
  EXPECT_THAT(Why(layout.CheckPush(push, {}).status()),
              HasSubstr("push.non_finite is set"));
  for (const double norm : {-1.0, std::numeric_limits<double>::quiet_NaN()}) {
    push = Push({});
    push.set_squared_norm(norm);
    EXPECT_THAT(Why(layout.CheckPush(push, {}).status()),
                HasSubstr("push.squared_norm"));
  }
  for (const double wait :
       {0.0, -1.0, 1e7, std::numeric_limits<double>::quiet_NaN(),
        std::numeric_limits<double>::infinity()}) {
    PullHeader pull;
    pull.set_wait_seconds(wait);
    EXPECT_THAT(Why(layout.CheckPull(pull, {}).status()),
                HasSubstr("pull.wait_seconds"));
  }
  PullHeader pull;
  pull.set_wait_seconds(1);
  pull.set_clock(-7);
  EXPECT_THAT(Why(layout.CheckPull(pull, {}).status()),
              HasSubstr("pull.clock"));
  InitHeader init;
  init.set_total_clocks(-2);
  EXPECT_THAT(Why(layout.CheckInit(init, 0).status()),
              HasSubstr("total_clocks"));
}

TEST(ShardLayoutTest, APushClosesLaterClocksWhereDataAreLeased) {
  const std::vector<TensorSize> tensors = {{"a", 2048}};
  PushHeader push = Push({0, 1});
  push.set_close_until(9);
  const ShardLayout leased(*BlockMap::Create(tensors, 1), 0, {}, {},
                           /*leases=*/true);
  const auto taken = leased.CheckPush(push, {nullptr, 2048 * 4});
  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_EQ(taken->facts.next_clock(), 9);
  const ShardLayout other(*BlockMap::Create(tensors, 1), 0);
  EXPECT_THAT(Why(other.CheckPush(push, {nullptr, 2048 * 4}).status()),
              HasSubstr("push.close_until is 9, must be 0: the job's data are "
                        "not leased"));
  for (const int64_t until : {4, 1, -1}) {
    push.set_close_until(until);
    EXPECT_THAT(Why(leased.CheckPush(push, {nullptr, 2048 * 4}).status()),
                HasSubstr("must be 0 or above push.clock, 4"));
  }
  push.clear_close_until();
  EXPECT_EQ(leased.CheckPush(push, {nullptr, 2048 * 4})->facts.next_clock(), 5);
}

TEST(ShardLayoutTest, APullMayBeLateForAChangeOfTheWireType) {
  const std::vector<TensorSize> tensors = {{"a", 2048}};
  TrainingRegime regime;
  regime.wire_type = ElementType::kBfloat16;
  ShardLayout layout(*BlockMap::Create(tensors, 1), 0, {},
                     RegimeSchedule(regime));
  PullHeader pull;
  pull.set_wait_seconds(1);
  pull.set_clock(30);
  pull.set_wire_type(WIRE_BFLOAT16);
  pull.add_blocks(0);
  EXPECT_EQ(layout.CheckPull(pull, {})->facts.type, ElementType::kBfloat16);
  regime.first_clock = 20;
  regime.wire_type = ElementType::kFloat16;
  layout.regimes().Add(regime);
  EXPECT_EQ(layout.TypeAt(19), ElementType::kBfloat16);
  EXPECT_EQ(layout.TypeAt(20), ElementType::kFloat16);
  EXPECT_EQ(layout.CheckPull(pull, {})->facts.type, ElementType::kBfloat16);
  pull.set_wire_type(WIRE_FLOAT16);
  EXPECT_EQ(layout.CheckPull(pull, {})->facts.type, ElementType::kFloat16);
  // A push is of its clock's type.
  PushHeader push = Push({0});
  push.set_clock(20);
  push.set_wire_type(WIRE_BFLOAT16);
  EXPECT_THAT(Why(layout.CheckPush(push, {nullptr, 2048 * 2}).status()),
              HasSubstr("push.wire_type is WIRE_BFLOAT16, the job's is "
                        "WIRE_FLOAT16 at clock 20"));
  pull.set_wire_type(static_cast<WireType>(9));
  EXPECT_FALSE(layout.CheckPull(pull, {}).ok());
}

TEST(ShardLayoutTest, TheChiefAlonePushesForALostWorker) {
  const std::vector<TensorSize> tensors = {{"a", 2048}};
  PushHeader push = Push({0, 1});
  push.mutable_caller()->set_rank(0);
  push.set_for_rank(2);
  const ShardLayout leased(*BlockMap::Create(tensors, 1), 0, {}, {},
                           /*leases=*/true);
  EXPECT_TRUE(leased.CheckPush(push, {nullptr, 2048 * 4}).ok());
  const ShardLayout other(*BlockMap::Create(tensors, 1), 0);
  EXPECT_THAT(
      Why(other.CheckPush(push, {nullptr, 2048 * 4}).status()),
      HasSubstr("push.for_rank is 2 in a push of rank 0, must be unset"));
  push.mutable_caller()->set_rank(1);
  EXPECT_THAT(
      Why(leased.CheckPush(push, {nullptr, 2048 * 4}).status()),
      HasSubstr("push.for_rank is 2 in a push of rank 1, must be unset"));
}

TEST(ShardLayoutTest, AnswersFitIntoAMessage) {
  const ShardLayout layout(
      *BlockMap::Create(std::vector<TensorSize>{{"a", 64 << 20}}, 1), 0);
  PullHeader pull;
  pull.set_wait_seconds(1);
  for (uint32_t block = 0; block < 3; ++block) pull.add_blocks(block);
  EXPECT_TRUE(layout.CheckPull(pull, {}).ok());
  pull.add_blocks(3);  // 4 MiB
  EXPECT_THAT(Why(layout.CheckPull(pull, {}).status()),
              HasSubstr("at most 4128768 fit into a message"));
}

// --- Rows --------------------------------------------------------------------

// As Layout(shard), with tables "users" (dim 3) and "items" (dim 1).
ShardLayout TableLayoutOf(uint32_t shard,
                          ElementType type = ElementType::kFloat32) {
  const std::vector<TensorSize> tensors = {{"a", 2048}, {"b", 7}, {"c", 8}};
  const TableMap map = *TableMap::Create(256, 2);
  return ShardLayout(*BlockMap::Create(tensors, 2), shard,
                     {{"users", 3, map}, {"items", 1, map}}, In(type));
}

// The first `count` keys from 0 on that a shard has, in the order of messages.
std::vector<int64_t> KeysOf(uint32_t shard, size_t count) {
  const TableMap map = *TableMap::Create(256, 2);
  std::vector<int64_t> keys;
  for (int64_t key = 0; keys.size() < count; ++key) {
    if (map.ShardOf(key) == shard) keys.push_back(key);
  }
  std::sort(keys.begin(), keys.end(),
            [&](int64_t a, int64_t b) { return map.Before(a, b); });
  return keys;
}

void AddTable(google::protobuf::RepeatedPtrField<TableRows>* tables,
              uint32_t table, uint32_t rows) {
  TableRows* added = tables->Add();
  added->set_table(table);
  added->set_rows(rows);
}

TEST(ShardLayoutTest, RowsComeBehindTheBlocks) {
  const ShardLayout layout = TableLayoutOf(1);
  const std::vector<int64_t> users = KeysOf(1, 5);
  const std::vector<int64_t> items = KeysOf(1, 2);
  PushPullHeader header;
  *header.mutable_push() = Push({2});
  AddTable(header.mutable_push()->mutable_tables(), 0, 5);
  AddTable(header.mutable_push()->mutable_tables(), 1, 2);
  header.mutable_pull()->set_wait_seconds(1);
  header.mutable_pull()->add_blocks(2);
  AddTable(header.mutable_pull()->mutable_tables(), 1, 2);
  PayloadBytes payload;
  payload.AppendZeros(7 * sizeof(float));
  payload.Append(users);
  payload.AppendZeros(5 * 3 * sizeof(float));
  payload.Append(items);
  payload.AppendZeros(2 * sizeof(float));
  payload.Append(items);  // of the pull

  CheckedPush push;
  CheckedPull pull;
  const absl::Status checked =
      layout.CheckPushPull(header, payload.part(), &push, &pull);
  ASSERT_TRUE(checked.ok()) << checked;
  ASSERT_EQ(push.rows.size(), 2u);
  EXPECT_EQ(push.rows[0].keys, users);
  EXPECT_EQ(push.rows[0].first, 7u + 10);
  EXPECT_EQ(push.rows[1].table, 1u);
  EXPECT_EQ(push.rows[1].keys, items);
  EXPECT_EQ(push.rows[1].first, 7u + 10 + 15 + 4);
  ASSERT_EQ(pull.rows.size(), 1u);
  EXPECT_EQ(pull.rows[0].keys, items);
  EXPECT_EQ(pull.rows[0].first, 7u);  // of the answer
  // Slots are blocks behind the dense ones: 128 of each table.
  ASSERT_EQ(layout.counts().size(), 2u);
  EXPECT_EQ(layout.block_count(), 2u + 2 * 128);
  EXPECT_THAT(push.facts.blocks, testing::SizeIs(1 + push.rows[0].runs.size() +
                                                 push.rows[1].runs.size()));
  EXPECT_EQ(push.facts.blocks[1],
            layout.SlotBlock(0, push.rows[0].runs[0].slot));
  EXPECT_EQ(pull.facts.blocks.back(),
            layout.SlotBlock(1, pull.rows[0].runs.back().slot));
  EXPECT_TRUE(
      std::is_sorted(push.facts.blocks.begin(), push.facts.blocks.end()));
  EXPECT_THAT(layout.Offsets(push.facts.blocks), ElementsAre(0, 7));
}

// Behind 7 values of 2 bytes keys begin at byte 14.
TEST(ShardLayoutTest, KeysAreWholeBetweenValuesOf16Bits) {
  constexpr ElementType kType = ElementType::kFloat16;
  const ShardLayout layout = TableLayoutOf(1, kType);
  const std::vector<int64_t> users = KeysOf(1, 5);
  const std::vector<int64_t> items = KeysOf(1, 2);
  PushPullHeader header;
  *header.mutable_push() = Push({2});
  header.mutable_push()->set_wire_type(WIRE_FLOAT16);
  AddTable(header.mutable_push()->mutable_tables(), 0, 5);
  AddTable(header.mutable_push()->mutable_tables(), 1, 2);
  header.mutable_pull()->set_wait_seconds(1);
  header.mutable_pull()->set_wire_type(WIRE_FLOAT16);
  AddTable(header.mutable_pull()->mutable_tables(), 0, 5);
  PayloadBytes payload;
  payload.AppendZeros(7 * ElementBytes(kType));
  payload.Append(users);
  payload.AppendZeros(5 * 3 * ElementBytes(kType));
  payload.Append(items);
  payload.AppendZeros(2 * ElementBytes(kType));
  payload.Append(users);  // of the pull

  CheckedPush push;
  CheckedPull pull;
  const absl::Status checked =
      layout.CheckPushPull(header, payload.part(), &push, &pull);
  ASSERT_TRUE(checked.ok()) << checked;
  EXPECT_EQ(push.rows[0].keys, users);
  EXPECT_EQ(push.rows[0].first, 7u + 5 * 4);
  EXPECT_EQ(push.rows[1].keys, items);
  EXPECT_EQ(push.rows[1].first, 7u + 5 * 4 + 15 + 2 * 4);
  EXPECT_EQ(pull.rows[0].keys, users);
  EXPECT_EQ(pull.facts.type, kType);
  payload.AppendZeros(1 * ElementBytes(kType));
  EXPECT_THAT(
      Why(layout.CheckPushPull(header, payload.part(), &push, &pull)),
      HasSubstr("146 bytes, its 1 blocks and 7 rows and a pull's keys have "
                "144"));
  // Keys alone are the same in every type.
  PayloadBytes keys;
  keys.Append(users);
  const auto alone = layout.CheckPull(header.pull(), keys.part());
  ASSERT_TRUE(alone.ok()) << alone.status();
  EXPECT_EQ(alone->rows[0].keys, users);
}

TEST(ShardLayoutTest, RefusesRows) {
  const ShardLayout layout = TableLayoutOf(0);
  const auto why = [&](std::vector<std::pair<uint32_t, uint32_t>> tables,
                       const std::vector<int64_t>& keys, size_t floats) {
    PushHeader header = Push({});
    for (const auto& [table, rows] : tables) {
      AddTable(header.mutable_tables(), table, rows);
    }
    PayloadBytes payload;
    payload.Append(keys);
    payload.AppendZeros(floats * sizeof(float));
    return Why(layout.CheckPush(header, payload.part()).status());
  };
  const std::vector<int64_t> good = KeysOf(0, 2);
  EXPECT_THAT(why({{2, 1}}, {}, 0),
              HasSubstr("push.tables[0]: table 2 does not exist, there are 2"));
  EXPECT_THAT(why({{1, 1}, {0, 1}}, {}, 0),
              HasSubstr("push.tables[1]: table 0 comes after table 1"));
  EXPECT_THAT(why({{1, 1}, {1, 1}}, {}, 0), HasSubstr("must be ascending"));
  EXPECT_THAT(why({{0, 0}}, {}, 0), HasSubstr("rows is 0, must be at least 1"));
  EXPECT_THAT(why({{0, 2}}, good, 5),
              HasSubstr("36 bytes, its 0 blocks and 2 rows have 40"));
  EXPECT_THAT(why({{0, 4294967295}}, good, 5), HasSubstr("4294967295 rows"));
  EXPECT_THAT(why({{0, 2}}, {good[1], good[0]}, 6),
              AllOf(HasSubstr("table 'users'"), HasSubstr("at position 1")));
  EXPECT_THAT(why({{0, 2}}, {good[0], good[0]}, 6), HasSubstr("are unique"));
  EXPECT_THAT(why({{0, 1}}, KeysOf(1, 1), 3),
              HasSubstr("belongs to shard 1, not to shard 0"));
}

TEST(ShardLayoutTest, PulledRowsFitIntoAMessage) {
  const ShardLayout layout(
      *BlockMap::Create(std::vector<TensorSize>{{"a", 1}}, 1), 0,
      {{"wide", 65536, *TableMap::Create(256, 1)}});
  std::vector<int64_t> keys;
  for (int64_t key = 0; key < 16; ++key) keys.push_back(key);
  std::sort(keys.begin(), keys.end(), [&](int64_t a, int64_t b) {
    return layout.tables()[0].map.Before(a, b);
  });
  const auto pull_of = [&](size_t rows) {
    PullHeader pull;
    pull.set_wait_seconds(1);
    AddTable(pull.mutable_tables(), 0, static_cast<uint32_t>(rows));
    PayloadBytes payload;
    payload.Append(std::vector<int64_t>(keys.begin(), keys.begin() + rows));
    return layout.CheckPull(pull, payload.part()).status();
  };
  EXPECT_TRUE(pull_of(15).ok()) << pull_of(15);
  EXPECT_THAT(Why(pull_of(16)),
              HasSubstr("pull.tables have 4194304 bytes, at most 4128768"));
}

}  // namespace
}  // namespace syncline::ps
