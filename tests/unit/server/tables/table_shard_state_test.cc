// Goal: a table that begins with another's state is the same table, on another
// number of lanes and with other memory: rows with their past and their
// optimizer's state, filters, counts, and where rows lie.
// Method: the same pushes to a table and to one that took over in the middle.

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/tables/table_shard.h"
#include "tests/testing/fakes/memory_cold_store.h"
#include "tests/unit/server/tables/table_shard_fixture.h"

namespace syncline::ps {
namespace {

using ::testing::HasSubstr;

// Every row as it is exported, without its place.
using Exported = std::map<int64_t, std::string>;

Exported ExportAll(TableShard* shard, size_t limit,
                   const std::vector<bool>& wanted = {},
                   std::string* places = nullptr) {
  Exported rows;
  for (uint32_t id = 0; id < shard->partitions(); ++id) {
    RowCursor cursor;
    uint64_t last = 0;
    while (!cursor.done) {
      RowBatch batch;
      EXPECT_TRUE(shard->ExportRows(id, wanted, limit, &cursor, &batch).ok());
      EXPECT_LE(batch.count, limit);
      EXPECT_EQ(batch.places.size(), batch.count);
      for (size_t i = 0; i < batch.count; ++i) {
        const std::string row =
            batch.rows.substr(i * shard->row_bytes(), shard->row_bytes());
        const int64_t key = RowLayout::Key(row.data());
        EXPECT_GE(ColdPosition(key), last) << "out of order";
        last = ColdPosition(key);
        EXPECT_TRUE(rows.emplace(key, row).second) << key << " came twice";
      }
      if (places != nullptr) *places += batch.places;
    }
  }
  return rows;
}

// Takes over everything but counts, in the pieces of a stream.
void Copy(TableShard* from, TableShard* to) {
  const absl::Time now = absl::UnixEpoch();
  for (uint32_t id = 0; id < from->partitions(); ++id) {
    const AdmissionFilter& filter = from->filter(id);
    const size_t half = filter.counters().size() / 2;
    for (const size_t first : {size_t{0}, half}) {
      EXPECT_TRUE(to->ImportFilter(
          from->SlotsOf(id), filter.counters().size(), filter.sightings(),
          first, filter.counters().subspan(first, first == 0 ? half : half)));
    }
    RowCursor cursor;
    while (!cursor.done) {
      RowBatch batch;
      ASSERT_TRUE(from->ExportRows(id, {}, 100, &cursor, &batch).ok());
      ASSERT_TRUE(
          to->ImportRows(batch.count, batch.rows.data(), batch.places.data())
              .ok());
    }
  }
  for (int lane = 0; lane < from->lanes(); ++lane) {
    to->ImportLane(from->ExportLane(lane, now), now);
  }
}

Gradients RandomPush(Random* random, int64_t keys, int count) {
  Gradients push;
  for (int i = 0; i < count; ++i) {
    push[static_cast<int64_t>(random->Below(keys)) - keys / 2] =
        RandomRow(random);
  }
  return push;
}

class TableStateTest : public ::testing::TestWithParam<OptimizerKind> {};

TEST_P(TableStateTest, ATableGoesOnFromAState) {
  TableOptions options = TestTableOptions(GetParam());
  options.memory_bytes = 64 << 10;
  options.admission = {.min_sightings = 2, .filter_bytes = 16 << 10};
  options.expiry = {.unseen_clocks = 6, .min_score = 0.3f, .decay = 0.7f};
  MemoryColdStore disk(TableShard::SpilledRowBytes(options));
  MemoryColdStore other_disk(TableShard::SpilledRowBytes(options));
  TestTable table(options, 2, &disk);
  TestTable other(options, 3, &other_disk);
  Random random(9);
  const auto push = [&](int64_t clock, std::vector<TestTable*> tables) {
    const Gradients rows = RandomPush(&random, 1500, 3000);
    for (TestTable* const one : tables) {
      ASSERT_TRUE(
          one->Push({rows}, {.clock = clock, .learning_rate = 0.1f}).ok());
      if (clock % 4 == 0) {
        ASSERT_TRUE(one->Maintain(clock).ok());
      }
    }
  };
  for (int64_t clock = 0; clock < 12; ++clock) push(clock, {&table});
  ASSERT_GT(table.Stats().rows_on_disk, 0u);
  ASSERT_GT(table.Stats().refused_by_sightings, 0u);
  Copy(&table.shard(), &other.shard());
  EXPECT_EQ(ExportAll(&other.shard(), 100), ExportAll(&table.shard(), 33));
  EXPECT_EQ(other.Stats().rows_in_memory, table.Stats().rows_in_memory);
  EXPECT_EQ(other.Stats().rows_on_disk, table.Stats().rows_on_disk);
  EXPECT_EQ(other.Stats().pushed_rows, table.Stats().pushed_rows);
  EXPECT_EQ(other.Stats().refused_by_sightings,
            table.Stats().refused_by_sightings);
  ASSERT_EQ(other.Stats().hot_keys.size(), table.Stats().hot_keys.size());
  for (int64_t clock = 12; clock < 24; ++clock) push(clock, {&table, &other});
  const Gradients rows = table.Scan(24, 1000, [] {});
  EXPECT_GT(rows.size(), 500u);
  EXPECT_EQ(other.Scan(24, 1000, [] {}), rows);
  EXPECT_EQ(other.Stats().refused_by_sightings,
            table.Stats().refused_by_sightings);
}

// Rows that were on disk are changed in memory and go to disk again.
TEST_P(TableStateTest, ATableGoesOnWithMoreMemory) {
  TableOptions options = TestTableOptions(GetParam());
  options.memory_bytes = 48 << 10;
  MemoryColdStore disk(TableShard::SpilledRowBytes(options));
  MemoryColdStore other_disk(TableShard::SpilledRowBytes(options));
  TestTable table(options, 2, &disk);
  options.memory_bytes = 512 << 10;
  TestTable other(options, 2, &other_disk);
  Random random(9);
  const auto push = [&](int64_t clock, int64_t keys,
                        std::vector<TestTable*> tables) {
    const Gradients rows = RandomPush(&random, keys, 3000);
    for (TestTable* const one : tables) {
      ASSERT_TRUE(
          one->Push({rows}, {.clock = clock, .learning_rate = 0.1f}).ok());
    }
  };
  for (int64_t clock = 0; clock < 6; ++clock) push(clock, 3000, {&table});
  Copy(&table.shard(), &other.shard());
  for (int64_t clock = 6; clock < 24; ++clock) {
    push(clock, 20'000, {&table, &other});
  }
  ASSERT_GT(other.Stats().rows_on_disk, 0u);
  const Gradients rows = table.Scan(24, 1000, [] {});
  EXPECT_GT(rows.size(), 5000u);
  EXPECT_EQ(other.Scan(24, 1000, [] {}), rows);
}

INSTANTIATE_TEST_SUITE_P(Optimizers, TableStateTest,
                         ::testing::Values(OptimizerKind::kSgd,
                                           OptimizerKind::kAdagrad,
                                           OptimizerKind::kRowWiseAdagrad,
                                           OptimizerKind::kAdam,
                                           OptimizerKind::kFtrl));

// Reads at a cut move rows between memory and disk.
TEST(TableShardStateTest, RowsThatMoveMeanwhileAreExportedOnce) {
  TableOptions options = TestTableOptions();
  options.memory_bytes = kFewRows;
  MemoryColdStore disk(TableShard::SpilledRowBytes(options));
  TestTable table(options, 1, &disk);
  ASSERT_TRUE(table.Push({OnePush(0, 4000)}, {.learning_rate = 1}).ok());
  const Exported before = ExportAll(&table.shard(), 50);
  EXPECT_EQ(before.size(), 4000u);
  Exported during;
  Random random(3);
  for (uint32_t id = 0; id < table.shard().partitions(); ++id) {
    RowCursor cursor;
    while (!cursor.done) {
      RowBatch batch;
      ASSERT_TRUE(table.shard().ExportRows(id, {}, 17, &cursor, &batch).ok());
      for (size_t i = 0; i < batch.count; ++i) {
        const size_t bytes = table.shard().row_bytes();
        const std::string row = batch.rows.substr(i * bytes, bytes);
        EXPECT_TRUE(during.emplace(RowLayout::Key(row.data()), row).second);
      }
      std::vector<int64_t> keys;
      const auto first = static_cast<int64_t>(random.Below(3500));
      for (int64_t key = first; key < first + 300; ++key) keys.push_back(key);
      Gradients rows;
      ASSERT_TRUE(table.Read(keys, 0, &rows).ok());
    }
  }
  EXPECT_EQ(during, before);
}

TEST(TableShardStateTest, PartOfTheSlotsIsExportedAlone) {
  TableOptions options = TestTableOptions();
  TestTable table(options, 2);
  ASSERT_TRUE(table.Push({OnePush(0, 3000)}, {.learning_rate = 1}).ok());
  std::vector<bool> wanted(table.map().slots());
  for (size_t slot = 0; slot < wanted.size(); slot += 3) wanted[slot] = true;
  const Exported all = ExportAll(&table.shard(), 100);
  const Exported part = ExportAll(&table.shard(), 100, wanted);
  size_t expected = 0;
  for (const auto& [key, row] : all) {
    if (!wanted[table.map().SlotOf(key)]) continue;
    ++expected;
    ASSERT_EQ(part.count(key), 1u);
    EXPECT_EQ(part.at(key), row);
  }
  EXPECT_EQ(part.size(), expected);
  // Every slot is one partition's.
  std::vector<uint32_t> slots;
  for (uint32_t id = 0; id < table.shard().partitions(); ++id) {
    for (const uint32_t slot : table.shard().SlotsOf(id)) slots.push_back(slot);
  }
  std::sort(slots.begin(), slots.end());
  ASSERT_EQ(slots.size(), 256u);
  for (uint32_t i = 0; i < slots.size(); ++i) EXPECT_EQ(slots[i], i);
}

TEST(TableShardStateTest, RowsBeyondTheMemoryGoToDiskOrAreRefused) {
  TableOptions options = TestTableOptions();
  TestTable table(options, 1);
  ASSERT_TRUE(table.Push({OnePush(0, 4000)}, {.learning_rate = 1}).ok());
  TableOptions small = options;
  small.memory_bytes = kFewRows;
  MemoryColdStore disk(TableShard::SpilledRowBytes(small));
  TestTable with_disk(small, 2, &disk);
  Copy(&table.shard(), &with_disk.shard());
  EXPECT_EQ(ExportAll(&with_disk.shard(), 100), ExportAll(&table.shard(), 100));
  EXPECT_GT(with_disk.Stats().rows_on_disk, 3000u);
  // And back: the importer has no disk.
  TestTable back(options, 3);
  Copy(&with_disk.shard(), &back.shard());
  EXPECT_EQ(back.Stats().rows_in_memory, 4000u);
  EXPECT_EQ(back.Scan(0, 100, [] {}), table.Scan(0, 100, [] {}));

  TestTable without(small, 1);
  absl::Status status;
  for (uint32_t id = 0; id < table.shard().partitions(); ++id) {
    RowCursor cursor;
    while (!cursor.done) {
      RowBatch batch;
      ASSERT_TRUE(table.shard().ExportRows(id, {}, 100, &cursor, &batch).ok());
      status.Update(without.shard().ImportRows(batch.count, batch.rows.data(),
                                               batch.places.data()));
    }
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("table users"));
}

TEST(TableShardStateTest, ADamagedRowOnDiskFailsTheExport) {
  TableOptions options = TestTableOptions();
  options.memory_bytes = kFewRows;
  MemoryColdStore disk(TableShard::SpilledRowBytes(options));
  TestTable table(options, 1, &disk);
  ASSERT_TRUE(table.Push({OnePush(0, 4000)}, {.learning_rate = 1}).ok());
  disk.get_error = absl::DataLossError("a row was damaged");
  RowCursor cursor;
  RowBatch batch;
  EXPECT_EQ(table.shard().ExportRows(0, {}, 100, &cursor, &batch),
            absl::DataLossError("a row was damaged"));
}

TEST(TableShardStateTest, AFilterOfAnotherSizeIsNotTaken) {
  TableOptions options = TestTableOptions();
  options.admission = {.min_sightings = 3, .filter_bytes = 64 << 10};
  TestTable table(options, 1);
  const AdmissionFilter& filter = table.shard().filter(0);
  EXPECT_FALSE(table.shard().ImportFilter(table.shard().SlotsOf(0),
                                          filter.counters().size() * 2, 1, 0,
                                          filter.counters()));
  EXPECT_TRUE(table.shard().ImportFilter(table.shard().SlotsOf(0),
                                         filter.counters().size(), 1, 0,
                                         filter.counters()));
}

}  // namespace
}  // namespace syncline::ps
