// Goal: a shard sums, reads, counts and checks what a push or a read asks of
// it, on any number of lanes. Method: drawn cases, each with the rows or counts
// that must come of it. The parts beside: table_shard_model_test.cc (seeded
// runs against a map), table_shard_expiry_test.cc (which rows come and go),
// table_shard_spill_test.cc (memory and disk).

#include "server/tables/table_shard.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "common/system/thread_pool.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/fakes/memory_cold_store.h"
#include "tests/testing/fakes/payloads.h"
#include "tests/unit/server/tables/table_shard_fixture.h"

namespace syncline::ps {
namespace {

using ::testing::HasSubstr;

TEST(TableShardTest, RowsThatAreNotFiniteStayAsTheyAre) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  TableOptions options = TestTableOptions(OptimizerKind::kSgd);
  TestTable table(options, 2);
  TestTable untouched(options, 2);
  Random random(5);
  Gradients finite;
  for (int64_t key = 0; key < 200; ++key) finite[key] = RandomRow(&random);
  Gradients second = finite;
  second[17].back() = kInfinity;
  second[150].front() = std::numeric_limits<float>::quiet_NaN();
  second[9999] = std::vector<float>(options.dim, -kInfinity);
  std::vector<int64_t> bad;
  const RowStep step = {.learning_rate = 0.1f, .non_finite = &bad};
  ASSERT_TRUE(table.Push({finite, second}, step).ok());
  EXPECT_THAT(bad, testing::UnorderedElementsAre(17, 150, 9999));
  bad.clear();
  ASSERT_TRUE(untouched.Push({finite, finite}, step).ok());
  EXPECT_THAT(bad, testing::IsEmpty());
  EXPECT_EQ(table.Stats().rows_in_memory, 198u);

  Gradients rows;
  Gradients expected;
  std::vector<int64_t> keys;
  for (int64_t key = 0; key < 200; ++key) keys.push_back(key);
  ASSERT_TRUE(table.Read(keys, 1, &rows).ok());
  ASSERT_TRUE(untouched.Read(keys, 1, &expected).ok());
  Gradients initial;
  TestTable empty(options, 2);
  ASSERT_TRUE(empty.Read({17, 150}, 1, &initial).ok());
  expected[17] = initial[17];
  expected[150] = initial[150];
  EXPECT_EQ(rows, expected);
}

// Under the thread sanitizer: what lanes share is made for it.
TEST(TableShardTest, LanesWorkAtTheSameTime) {
  constexpr int kLanes = 4;
  TableOptions options = TestTableOptions(OptimizerKind::kSgd);
  options.memory_bytes = kFewRows;
  MemoryColdStore cold(TableShard::SpilledRowBytes(options));
  TestTable table(options, kLanes, &cold);
  TableModel model(options);
  const Gradients push = OnePush(0, 3000);
  std::vector<int64_t> keys;
  for (const auto& [key, row] : push) keys.push_back(key);
  std::sort(keys.begin(), keys.end(),
            [&](int64_t a, int64_t b) { return table.map().Before(a, b); });
  const VectorFloats ones(std::vector<float>(keys.size() * kDim, 1.0f));
  {
    ThreadPool threads("lane", kLanes);
    for (int lane = 0; lane < kLanes; ++lane) {
      ASSERT_TRUE(threads.TrySubmit([&, lane] {
        std::vector<int64_t> mine;
        for (const int64_t key : keys) {
          if (table.shard().LaneOf(table.map().SlotOf(key)) == lane) {
            mine.push_back(key);
          }
        }
        std::vector<float> out(mine.size() * kDim);
        const GradientRows rows = {.keys = mine, .values = &ones};
        for (int64_t clock = 0; clock < 5; ++clock) {
          const RowStep step = {.clock = clock, .learning_rate = 1};
          EXPECT_TRUE(table.shard().Push(lane, {rows}, step).ok());
          EXPECT_TRUE(table.shard().Read(lane, mine, clock, out.data()).ok());
          EXPECT_TRUE(table.shard().AcceptsPushes().ok());
          EXPECT_TRUE(
              table.shard().Maintain(lane, clock, absl::UnixEpoch()).ok());
        }
      }));
    }
  }
  for (int i = 0; i < 5; ++i) model.Push({push}, {.learning_rate = 1});
  EXPECT_EQ(table.Scan(5, 100, [] {}), model.All(5));
}

TEST(TableShardTest, SumsWorkersInRankOrder) {
  TestTable table(TestTableOptions(OptimizerKind::kSgd), 2);
  const float large = 1 << 25;
  const auto row = [](float v) { return std::vector<float>(kDim, v); };
  // (2^25 + 1) - 2^25 is 0 in float32, and (2^25 - 2^25) + 1 is 1.
  ASSERT_TRUE(table
                  .Push({{{1, row(large)}},
                         {{1, row(1)}, {2, row(3)}},
                         {{1, row(-large)}}},
                        {.learning_rate = 1})
                  .ok());
  EXPECT_EQ(table.Row(1), TableModel(TestTableOptions()).Row(1, 0));
  EXPECT_NE(table.Row(2), TableModel(TestTableOptions()).Row(2, 0));
  EXPECT_EQ(table.Stats().pushed_rows, 2u);
}

TEST(TableShardTest, ReadingNeverCreates) {
  const TableOptions options = TestTableOptions();
  TestTable table(options, 1);
  EXPECT_EQ(table.Row(9), TableModel(options).Row(9, 0));
  EXPECT_EQ(table.Stats().rows_in_memory, 0u);
  EXPECT_EQ(table.Stats().read_absent, 1u);
  EXPECT_TRUE(table.Scan(0, 10, [] {}).empty());
}

TEST(TableShardTest, NormsAreOfWhatAPushWouldApplyBySlot) {
  TestTable table(TestTableOptions(), 1);
  const uint32_t slots = table.map().slots();
  // Several keys a slot; the last one of the first worker is not finite.
  std::vector<int64_t> keys;
  for (int64_t key = 0; key < 4 * slots; ++key) keys.push_back(key);
  std::sort(keys.begin(), keys.end(),
            [&](int64_t a, int64_t b) { return table.map().Before(a, b); });
  std::vector<float> first(keys.size() * kDim, 3.0f);
  first.back() = std::numeric_limits<float>::infinity();
  const VectorFloats bad(first);
  const VectorFloats good(std::vector<float>(keys.size() * kDim, 1.0f));
  std::vector<double> expected(slots, 7);  // those of other slots stay
  for (const int64_t key : keys) expected[table.map().SlotOf(key)] = 0;
  for (const int64_t key : keys) {
    if (key == keys.back()) continue;
    expected[table.map().SlotOf(key)] += kDim * 4.0;
  }
  std::vector<int64_t> named;
  std::vector<double> norms(slots, 7);
  table.shard().SquaredNorms(
      0, {{.keys = keys, .values = &bad}, {.keys = keys, .values = &good}},
      {.gradient_scale = 0.5f, .non_finite = &named}, absl::MakeSpan(norms));
  EXPECT_EQ(norms, expected);
  EXPECT_THAT(named, testing::ElementsAre(keys.back()));
  EXPECT_EQ(table.Stats().rows_in_memory, 0u);
}

TEST(TableShardTest, NamesItsHottestKeys) {
  TestTable table(TestTableOptions(), 3);
  for (int64_t i = 0; i < 40; ++i) {
    Gradients push = OnePush(1000 * i, 100);
    for (int64_t key = 0; key <= i / 4; ++key) {
      push[-1 - key] = std::vector<float>(kDim, 1.0f);
    }
    ASSERT_TRUE(table.Push({push}, {.clock = i}).ok());
  }
  const std::vector<HotKey> hot = table.Stats().hot_keys;
  ASSERT_GE(hot.size(), 3u);
  EXPECT_EQ(hot[0].key, -1);
  EXPECT_EQ(hot[0].pushes, 40u);
  EXPECT_EQ(hot[1].key, -2);
  EXPECT_EQ(hot[2].pushes, 32u);
}

TEST(TableShardTest, RefusedKeysAreAmongTheHottest) {
  TableOptions options = TestTableOptions();
  options.admission.min_sightings = 255;
  options.admission.filter_bytes = 64 << 10;
  TestTable table(options, 2);
  for (int64_t i = 0; i < 40; ++i) {
    Gradients push = OnePush(1000 * i, 100);
    push[-1] = std::vector<float>(kDim, 1.0f);
    ASSERT_TRUE(table.Push({push}, {.clock = i}).ok());
  }
  const std::vector<HotKey> hot = table.Stats().hot_keys;
  ASSERT_FALSE(hot.empty());
  EXPECT_EQ(hot[0].key, -1);
  EXPECT_EQ(hot[0].pushes, 40u);
  EXPECT_EQ(hot[0].refused, 40u);
  EXPECT_EQ(hot[0].refused_error, 0u);
}

TEST(TableShardTest, DimsFromOneToTheLargest) {
  for (const uint32_t dim : {1u, 3u, 16u, 1000u, 65536u}) {
    for (const OptimizerKind kind :
         {OptimizerKind::kRowWiseAdagrad, OptimizerKind::kAdam}) {
      SCOPED_TRACE(absl::StrCat("dim=", dim));
      TableOptions options = TestTableOptions(kind);
      options.dim = dim;
      options.memory_bytes = 1 << 20;
      ASSERT_TRUE(TableShard::CheckOptions(options).ok());
      MemoryColdStore cold(TableShard::SpilledRowBytes(options));
      TestTable table(options, 2, &cold);
      TableModel model(options);
      std::vector<Gradients> push(2);
      for (int64_t key = 0; key < 12; ++key) {
        push[0][key] = std::vector<float>(dim, 0.5f);
        push[1][key / 2] = std::vector<float>(dim, 1.5f);
      }
      for (int i = 0; i < 2; ++i) {
        ASSERT_TRUE(table.Push(push, {.learning_rate = 0.1f}).ok());
        model.Push(push, {.learning_rate = 0.1f});
      }
      EXPECT_LE(table.Stats().memory_bytes, options.memory_bytes);
      for (int64_t key = 0; key < 13; ++key) {
        ASSERT_EQ(table.Row(key), model.Row(key, 0)) << key;
      }
      EXPECT_EQ(table.Scan(0, 5, [] {}), model.All(0));
    }
  }
}

TEST(TableShardTest, RefusesWhatCannotWork) {
  const auto problem = [](auto change) {
    TableOptions options = TestTableOptions();
    change(&options);
    const absl::Status status = TableShard::CheckOptions(options);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_TRUE(TableShard::CheckOptions(TestTableOptions()).ok());
  EXPECT_THAT(problem([](TableOptions* o) { o->dim = 0; }), HasSubstr("dim"));
  EXPECT_THAT(problem([](TableOptions* o) { o->dim = 100000; }),
              HasSubstr("table users: dim is 100000, expected 1..65536"));
  EXPECT_THAT(problem([](TableOptions* o) {
                o->optimizer.kind = OptimizerKind::kMomentum;
              }),
              HasSubstr("optimizer"));
  EXPECT_THAT(problem([](TableOptions* o) {
                o->dim = 65536;
                o->memory_bytes = 200 << 10;
              }),
              HasSubstr("204800 bytes of memory do not hold"));
  EXPECT_THAT(problem([](TableOptions* o) {
                o->admission = {.min_sightings = 2, .filter_bytes = 8 << 20};
              }),
              HasSubstr("filter"));
  EXPECT_THAT(problem([](TableOptions* o) { o->admission.min_sightings = 2; }),
              HasSubstr("expected at least 64"));
  EXPECT_THAT(
      problem([](TableOptions* o) { o->admission.min_sightings = 300; }),
      HasSubstr("min_sightings is 300"));
  EXPECT_THAT(problem([](TableOptions* o) { o->admission.probability = 0; }),
              HasSubstr("probability"));
  EXPECT_THAT(problem([](TableOptions* o) {
                o->admission = {.min_sightings = 2, .probability = 0.5};
              }),
              HasSubstr("one of them"));
  EXPECT_THAT(problem([](TableOptions* o) { o->expiry.unseen_clocks = -1; }),
              HasSubstr("expiry"));
  EXPECT_THAT(problem([](TableOptions* o) {
                o->expiry = {.min_score = 1, .decay = 1.5f};
              }),
              HasSubstr("decay"));
}

TEST(TableShardTest, CursorsAreCheckedWhenTheyComeBack) {
  ScanCursor cursor;
  cursor.partition = 7;
  cursor.position = 5;
  const auto decoded = ScanCursor::Decode(cursor.Encode());
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(decoded->partition, 7u);
  EXPECT_EQ(decoded->position, 5u);
  EXPECT_FALSE(ScanCursor::Decode("").ok());
  EXPECT_FALSE(ScanCursor::Decode("thirteen bytes").ok());
}

}  // namespace
}  // namespace syncline::ps
