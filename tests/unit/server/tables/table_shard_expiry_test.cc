// Goal: rows are admitted and expire by the rules that the table was given, in
// memory and on disk, and are counted. Method: pushes of known keys at known
// clocks.

#include <algorithm>
#include <cstdint>

#include "gtest/gtest.h"
#include "server/tables/table_shard.h"
#include "tests/testing/fakes/memory_cold_store.h"
#include "tests/unit/server/tables/table_shard_fixture.h"

namespace syncline::ps {
namespace {

TEST(TableShardTest, AKeyIsAdmittedOnceItWasSeenOften) {
  TableOptions options = TestTableOptions();
  options.admission = {.min_sightings = 3, .filter_bytes = 1 << 20};
  TestTable table(options, 2);
  const TableModel model(options);
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(table.Push({OnePush(0, 100)}, {.learning_rate = 1}).ok());
    EXPECT_EQ(table.Row(5), model.Row(5, 0));
  }
  EXPECT_EQ(table.Stats().rows_in_memory, 0u);
  EXPECT_EQ(table.Stats().refused_by_sightings, 200u);
  ASSERT_TRUE(table.Push({OnePush(0, 100)}, {.learning_rate = 1}).ok());
  EXPECT_EQ(table.Stats().rows_in_memory, 100u);
  EXPECT_NE(table.Row(5), model.Row(5, 0));
}

TEST(TableShardTest, AKeyIsAdmittedByChanceWhereverItLives) {
  TableOptions options = TestTableOptions();
  options.admission.probability = 0.25;
  TestTable one(options, 1), four(options, 4);
  for (TestTable* table : {&one, &four}) {
    ASSERT_TRUE(table->Push({OnePush(0, 2000)}, {.clock = 3}).ok());
    EXPECT_NEAR(static_cast<double>(table->Stats().rows_in_memory), 500, 80);
    EXPECT_EQ(
        table->Stats().rows_in_memory + table->Stats().refused_by_probability,
        2000u);
  }
  EXPECT_EQ(one.Scan(3, 100, [] {}), four.Scan(3, 100, [] {}));
  // Another clock, another draw.
  ASSERT_TRUE(one.Push({OnePush(0, 2000)}, {.clock = 4}).ok());
  EXPECT_NEAR(static_cast<double>(one.Stats().rows_in_memory), 875, 100);
}

TEST(TableShardTest, AdmissionIsStricterWhenMemoryRunsOut) {
  TableOptions options = TestTableOptions();
  options.admission.probability = 0.5;
  options.memory_bytes = kFewRows;
  MemoryColdStore cold(TableShard::SpilledRowBytes(options));
  TestTable table(options, 1, &cold);
  for (int64_t i = 0; i < 10; ++i) {
    ASSERT_TRUE(table.Push({OnePush(i * 1000, 1000)}, {.clock = i}).ok());
  }
  const TableStats stats = table.Stats();
  EXPECT_GT(stats.refused_by_budget,
            1500u);  // half of the 5,000 but for the first
  EXPECT_GT(stats.spilled_rows, 0u);
}

TEST(TableShardTest, ExpiryByAgeByTimeAndByScoreAreCounted) {
  TableOptions options = TestTableOptions();
  options.expiry.unseen_time = absl::Hours(1);
  options.expiry.unseen_clocks = 100;
  TestTable table(options, 2);
  ASSERT_TRUE(table.Push({OnePush(0, 50)}, {.clock = 0}).ok());
  ASSERT_TRUE(table.Push({OnePush(50, 50)}, {.clock = 10}).ok());
  const absl::Time start = absl::FromUnixSeconds(1000);
  ASSERT_TRUE(table.Maintain(10, start).ok());
  EXPECT_EQ(table.Stats().rows_in_memory, 100u);
  ASSERT_TRUE(table.Maintain(20, start + absl::Minutes(61)).ok());
  EXPECT_EQ(table.Stats().rows_in_memory, 50u);  // pushed before clock 10
  EXPECT_EQ(table.Stats().expired_by_age, 50u);
  ASSERT_TRUE(table.Maintain(111, start + absl::Minutes(62)).ok());
  EXPECT_EQ(table.Stats().expired_by_age, 100u);

  options = TestTableOptions();
  options.expiry = {.min_score = 0.5f, .decay = 0.5f, .decay_clocks = 10};
  TestTable scored(options, 2);
  ASSERT_TRUE(scored.Push({OnePush(0, 100)}, {.clock = 5}).ok());
  ASSERT_TRUE(scored.Push({OnePush(0, 10)}, {.clock = 6}).ok());
  ASSERT_TRUE(scored.Maintain(19).ok());  // scores 1/2 and 1
  EXPECT_EQ(scored.Stats().rows_in_memory, 100u);
  ASSERT_TRUE(scored.Maintain(20).ok());  // 1/4 and 1/2
  EXPECT_EQ(scored.Stats().rows_in_memory, 10u);
  EXPECT_EQ(scored.Stats().expired_by_score, 90u);
}

TEST(TableShardTest, RowsExpireOnDiskToo) {
  TableOptions options = TestTableOptions();
  options.memory_bytes = kFewRows;
  options.expiry.unseen_clocks = 5;
  MemoryColdStore cold(TableShard::SpilledRowBytes(options));
  TestTable table(options, 1, &cold);
  ASSERT_TRUE(table.Push({OnePush(0, 5000)}, {.clock = 0}).ok());
  ASSERT_GT(table.Stats().rows_on_disk, 3000u);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(table.Maintain(6).ok());
  const TableStats stats = table.Stats();
  EXPECT_EQ(stats.rows_in_memory, 0u);
  EXPECT_EQ(stats.rows_on_disk, 0u);
  EXPECT_EQ(stats.expired_by_age, 5000u);
  EXPECT_EQ(cold.disk_bytes(), 0u);
}

TEST(TableShardTest, AnUpkeepReadsABoundedPartOfTheDisk) {
  TableOptions options = TestTableOptions();
  options.memory_bytes = kFewRows;
  options.expiry.unseen_clocks = 5;
  const size_t row_bytes = TableShard::SpilledRowBytes(options);
  MemoryColdStore cold(row_bytes);
  TestTable table(options, 1, &cold);
  constexpr int64_t kRows = 150'000;
  for (int64_t key = 0; key < kRows; key += 10'000) {
    ASSERT_TRUE(table.Push({OnePush(key, 10'000)}, {.clock = 0}).ok());
  }
  const uint64_t all = cold.disk_bytes();
  ASSERT_GT(all, 4u << 20);
  int upkeeps = 0;
  uint64_t most = 0;
  for (; table.Stats().rows_on_disk > 0; ++upkeeps) {
    ASSERT_LT(upkeeps, 100);
    const uint64_t before = cold.scanned_bytes;
    ASSERT_TRUE(table.Maintain(6).ok());
    most = std::max(most, cold.scanned_bytes - before);
  }
  EXPECT_LE(most, (4u << 20) + row_bytes);
  EXPECT_GE(upkeeps, 2);
  EXPECT_EQ(table.Stats().expired_by_age, uint64_t{kRows});
}

TEST(TableShardTest, RowsOnDiskAreCountedThroughAHalfFailedDelete) {
  TableOptions options = TestTableOptions();
  options.memory_bytes = kFewRows;
  options.expiry.unseen_clocks = 5;
  const size_t row_bytes = TableShard::SpilledRowBytes(options);
  MemoryColdStore cold(row_bytes);
  TestTable table(options, 1, &cold);
  ASSERT_TRUE(table.Push({OnePush(0, 5000)}, {.clock = 0}).ok());
  cold.put_error = absl::UnavailableError("no disk");
  cold.deletes_most = 10;
  const uint64_t before = cold.disk_bytes();
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(table.Maintain(6).ok());
  EXPECT_LT(cold.disk_bytes(), before);
  EXPECT_EQ(table.Stats().rows_on_disk, cold.disk_bytes() / row_bytes);
  cold.put_error = absl::OkStatus();
  for (int i = 0; i < 9; ++i) ASSERT_TRUE(table.Maintain(6).ok());
  EXPECT_EQ(table.Stats().rows_on_disk, 0u);
  EXPECT_EQ(cold.disk_bytes(), 0u);
}

TEST(TableShardTest, ExpiredRowsGoBeforeColdOnesAreWritten) {
  TableOptions options = TestTableOptions();
  options.memory_bytes = kFewRows;
  options.expiry.unseen_clocks = 1;
  MemoryColdStore cold(TableShard::SpilledRowBytes(options));
  TestTable table(options, 1, &cold);
  for (int64_t i = 0; i < 20; ++i) {
    ASSERT_TRUE(table.Push({OnePush(i * 200, 200)}, {.clock = i}).ok());
  }
  EXPECT_EQ(table.Stats().spilled_rows, 0u);
  EXPECT_GT(table.Stats().expired_by_age, 3000u);
}

}  // namespace
}  // namespace syncline::ps
