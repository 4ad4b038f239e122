// Goal: a table with memory for few rows loses none, whatever its disk does:
// full, failing, damaged or absent. Method: a cold store that fails when told
// to, and the rows and counts after it.

#include <cstdint>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/tables/table_shard.h"
#include "tests/testing/fakes/memory_cold_store.h"
#include "tests/unit/server/tables/table_shard_fixture.h"

namespace syncline::ps {
namespace {

using ::testing::HasSubstr;

TEST(TableShardTest, WithoutDiskAFullTableRefusesNewRowsOnly) {
  TableOptions options = TestTableOptions(OptimizerKind::kSgd);
  options.memory_bytes = kFewRows;
  TestTable table(options, 2);
  EXPECT_TRUE(table.shard().AcceptsPushes().ok());
  const absl::Status status =
      table.Push({OnePush(0, 5000)}, {.learning_rate = 1});
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("table users is full"));
  EXPECT_EQ(table.shard().AcceptsPushes(), status);
  const TableStats stats = table.Stats();
  EXPECT_EQ(stats.refused_by_budget + stats.rows_in_memory, 5000u);
  EXPECT_LE(stats.memory_bytes, options.memory_bytes);
  EXPECT_GT(stats.memory_bytes, options.memory_bytes * 7 / 10);

  // Existing rows can be pushed to and read.
  const Gradients before = table.Scan(0, 1000, [] {});
  EXPECT_EQ(before.size(), stats.rows_in_memory);
  Gradients again;
  for (const auto& [key, row] : before) {
    again[key] = std::vector<float>(kDim, 1.0f);
  }
  EXPECT_TRUE(table.Push({again}, {.learning_rate = 1}).ok());
  for (const auto& [key, row] : before) {
    EXPECT_EQ(table.Row(key)[0], row[0] - 1);
  }
}

// A partition without room holds up all pushes, so no clock passes until it has
// some: it must not wait for its turn in a sweep of many rows.
TEST(TableShardTest, OneUpkeepMakesRoomWhereverThereWasNone) {
  TableOptions options = TestTableOptions(OptimizerKind::kSgd);
  options.memory_bytes = 20 << 20;
  options.expiry.unseen_clocks = 5;
  TestTable table(options, 1);
  absl::Status pushed;
  for (int64_t key = 0; key < 800'000; key += 50'000) {
    pushed = table.Push({OnePush(key, 50'000)}, {.learning_rate = 1});
  }
  ASSERT_TRUE(absl::IsResourceExhausted(pushed));
  ASSERT_FALSE(table.shard().AcceptsPushes().ok());
  ASSERT_GT(table.Stats().rows_in_memory, 300'000u) << "more than one sweep";
  ASSERT_TRUE(table.Maintain(100).ok());
  EXPECT_TRUE(table.shard().AcceptsPushes().ok());
}

TEST(TableShardTest, AFullDiskRefusesAndLosesNothing) {
  TableOptions options = TestTableOptions(OptimizerKind::kSgd);
  options.memory_bytes = kFewRows;
  const size_t row_bytes = TableShard::SpilledRowBytes(options);
  MemoryColdStore cold(row_bytes, 1000 * row_bytes);
  TestTable table(options, 1, &cold);
  TableModel model(options);
  int64_t accepted = 0;
  while (table.shard().AcceptsPushes().ok()) {
    ASSERT_LT(accepted, 5000);
    const std::vector<Gradients> push = {OnePush(accepted, 20)};
    ASSERT_TRUE(table.Push(push, {.learning_rate = 1}).ok());
    model.Push(push, {.learning_rate = 1});
    accepted += 20;
  }
  EXPECT_THAT(std::string(table.shard().AcceptsPushes().message()),
              HasSubstr("bytes on disk"));
  // The reserve takes what was on its way, and then there is none.
  absl::Status status;
  for (int64_t key = 10000; status.ok() && key < 20000; key += 20) {
    status = table.Push({OnePush(key, 20)}, {.learning_rate = 1});
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_GT(table.Stats().refused_by_budget, 0u);
  for (int64_t key = 0; key < accepted; ++key) {
    ASSERT_EQ(table.Row(key), model.Row(key, 0)) << "key " << key;
  }
}

TEST(TableShardTest, AFailingDiskIsTriedAgain) {
  TableOptions options = TestTableOptions(OptimizerKind::kSgd);
  options.memory_bytes = kFewRows;
  MemoryColdStore cold(TableShard::SpilledRowBytes(options));
  TestTable table(options, 1, &cold);
  cold.put_error = absl::UnavailableError("the disk is on fire");
  const absl::Status status =
      table.Push({OnePush(0, 5000)}, {.learning_rate = 1});
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("on fire"));
  EXPECT_FALSE(table.shard().AcceptsPushes().ok());
  ASSERT_TRUE(table.Maintain(0).ok());
  EXPECT_FALSE(table.shard().AcceptsPushes().ok());
  cold.put_error = absl::OkStatus();
  ASSERT_TRUE(table.Maintain(0).ok());
  EXPECT_TRUE(table.shard().AcceptsPushes().ok());
  EXPECT_TRUE(table.Push({OnePush(0, 5000)}, {.learning_rate = 1}).ok());
}

TEST(TableShardTest, ADiskThatCannotBeReadHurtsOnlyItsRows) {
  TableOptions options = TestTableOptions(OptimizerKind::kSgd);
  options.memory_bytes = kFewRows;
  options.initializer = {RowInitializer::Scheme::kZeros, 0, 0, ""};
  MemoryColdStore cold(TableShard::SpilledRowBytes(options));
  TestTable table(options, 1, &cold);
  ASSERT_TRUE(table.Push({OnePush(0, 3000)}, {.learning_rate = 1}).ok());
  const Gradients before = table.Scan(0, 1000, [] {});
  ASSERT_GT(table.Stats().rows_on_disk, 2000u);
  cold.get_error = absl::DataLossError("block checksum mismatch");
  const absl::Status pushed =
      table.Push({OnePush(0, 3000)}, {.learning_rate = 1});
  EXPECT_EQ(pushed.code(), absl::StatusCode::kDataLoss);
  Gradients rows;
  std::vector<int64_t> keys;
  for (const auto& [key, row] : before) keys.push_back(key);
  EXPECT_EQ(table.Read(keys, 0, &rows).code(), absl::StatusCode::kDataLoss);
  // Rows in memory moved, rows on disk did not, and none was made twice.
  cold.get_error = absl::OkStatus();
  int moved = 0;
  for (const auto& [key, row] : before) {
    const float step = row[0] - table.Row(key)[0];
    EXPECT_TRUE(step == 0 || step == 1) << step;
    moved += step == 1;
  }
  EXPECT_GT(moved, 100);
  EXPECT_LT(moved, 1000);
  EXPECT_EQ(table.Scan(0, 1000, [] {}).size(), 3000u);
}

TEST(TableShardTest, ADamagedRowCostsNoOther) {
  TableOptions options = TestTableOptions(OptimizerKind::kSgd);
  options.memory_bytes = kFewRows;
  options.initializer = {RowInitializer::Scheme::kZeros, 0, 0, ""};
  MemoryColdStore cold(TableShard::SpilledRowBytes(options));
  TestTable table(options, 1, &cold);
  ASSERT_TRUE(table.Push({OnePush(0, 3000)}, {.learning_rate = 1}).ok());
  cold.unreadable_keys = {7};
  // Until it is not in memory.
  ASSERT_TRUE(table.Push({OnePush(3000, 3000)}, {.learning_rate = 1}).ok());
  const Gradients before = table.Scan(0, 1000, [] {});
  const absl::Status pushed =
      table.Push({OnePush(0, 20)}, {.learning_rate = 1});
  EXPECT_EQ(pushed.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(table.Stats().unreadable_rows, 1u);
  for (int64_t key = 0; key < 20; ++key) {
    if (key == 7) continue;
    EXPECT_EQ(table.Row(key)[0], before.at(key)[0] - 1) << key;
  }
  Gradients rows;
  EXPECT_EQ(table.Read({6, 7, 8}, 0, &rows).code(),
            absl::StatusCode::kDataLoss);
  EXPECT_EQ(rows[6], table.Row(6));
  EXPECT_EQ(rows[8], table.Row(8));
  EXPECT_EQ(table.Stats().unreadable_rows, 2u);
  cold.unreadable_keys.clear();
  EXPECT_EQ(table.Row(7)[0], before.at(7)[0]) << "it was made twice";
}

TEST(TableShardTest, UnchangedRowsAreNotWrittenAgain) {
  TableOptions options = TestTableOptions();
  options.memory_bytes = kFewRows;
  MemoryColdStore cold(TableShard::SpilledRowBytes(options));
  TestTable table(options, 1, &cold);
  ASSERT_TRUE(table.Push({OnePush(0, 4000)}, {.learning_rate = 1}).ok());
  Gradients rows;
  std::vector<int64_t> keys;
  for (int64_t key = 0; key < 4000; ++key) keys.push_back(key);
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(table.Read(keys, 0, &rows).ok());
  const uint64_t written = table.Stats().spilled_rows;
  EXPECT_LE(written, 4000u);
  ASSERT_TRUE(table.Read(keys, 0, &rows).ok());
  EXPECT_EQ(table.Stats().spilled_rows, written);
  EXPECT_GT(table.Stats().loaded_rows, 3000u);
}

TEST(TableShardTest, WarmRowsStayInMemory) {
  TableOptions options = TestTableOptions();
  options.memory_bytes = kFewRows;
  MemoryColdStore cold(TableShard::SpilledRowBytes(options));
  TestTable table(options, 1, &cold);
  for (int64_t i = 0; i < 50; ++i) {
    Gradients push = OnePush(0, 100);
    push.merge(OnePush(1000 + 100 * i, 100));
    ASSERT_TRUE(table.Push({push}, {.clock = i}).ok());
  }
  // The hundred that every push has were hardly ever away.
  EXPECT_LT(table.Stats().loaded_rows, 50u);
}

TEST(TableShardTest, KeysThatWereOnDiskAreAmongTheHottest) {
  TableOptions options = TestTableOptions();
  options.memory_bytes = kFewRows;
  MemoryColdStore cold(TableShard::SpilledRowBytes(options));
  TestTable table(options, 2, &cold);
  for (int64_t i = 0; i < 40; ++i) {
    // Between two pushes of -1 everything in memory makes room.
    Gradients push = OnePush(2000 * i, 2000);
    if (i % 4 == 0) push[-1] = std::vector<float>(kDim, 1.0f);
    ASSERT_TRUE(table.Push({push}, {.clock = i}).ok());
  }
  EXPECT_GT(table.Stats().loaded_rows, 0u);
  const std::vector<HotKey> hot = table.Stats().hot_keys;
  ASSERT_FALSE(hot.empty());
  EXPECT_EQ(hot[0].key, -1);
  EXPECT_EQ(hot[0].pushes, 10u);
  EXPECT_EQ(hot[0].refused, 0u);
}

}  // namespace
}  // namespace syncline::ps
