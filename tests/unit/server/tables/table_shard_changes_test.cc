// Goal: what a table says has changed since a cut is all that has: whoever has
// the rows of that cut has those of the next one with it.
// Method: tables that spill, load, expire and run out of disk; beside them a
// copy that takes only what is said to have changed.

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/base/random.h"
#include "gtest/gtest.h"
#include "server/tables/table_shard.h"
#include "tests/testing/fakes/memory_cold_store.h"
#include "tests/testing/seed_count.h"
#include "tests/unit/server/tables/table_shard_fixture.h"

namespace syncline::ps {
namespace {

// Rows with their places, but for the mark of being read.
using Copy = std::map<int64_t, std::pair<std::string, int>>;

void Take(const TableShard& shard, const RowBatch& batch, Copy* copy) {
  for (size_t i = 0; i < batch.count; ++i) {
    const std::string row =
        batch.rows.substr(i * shard.row_bytes(), shard.row_bytes());
    (*copy)[RowLayout::Key(row.data())] = {
        row, batch.places[i] & RowBatch::kInMemory};
  }
}

Copy All(TableShard* shard) {
  Copy all;
  for (uint32_t id = 0; id < shard->partitions(); ++id) {
    RowCursor cursor;
    while (!cursor.done) {
      RowBatch batch;
      EXPECT_TRUE(shard->ExportRows(id, {}, 500, &cursor, &batch).ok());
      Take(*shard, batch, &all);
    }
  }
  return all;
}

TEST(TableShardChangesTest, AreAllThatHasChangedSinceACut) {
  size_t written = 0;
  size_t all_rows = 0;
  size_t gone_rows = 0;
  uint64_t loaded = 0;
  for (int seed = 1; seed <= SeedCount(10); ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    TableOptions options = TestTableOptions();
    options.memory_bytes = 64 << 10;
    options.expiry = {.unseen_clocks = 9, .min_score = 0.05f, .decay = 0.8f};
    MemoryColdStore disk(TableShard::SpilledRowBytes(options));
    TestTable table(options, 2, &disk);
    Copy copy;
    uint64_t base = 0;
    for (uint64_t cut = 1; cut <= 24; ++cut) {
      const auto clock = static_cast<int64_t>(cut);
      Gradients rows;
      const uint64_t count = cut < 4 ? 1500 : random.Below(60);
      for (uint64_t i = 0; i < count; ++i) {
        rows[static_cast<int64_t>(random.Below(2000)) - 1000] =
            RandomRow(&random);
      }
      // A disk that fails for a while loses no mark.
      if (random.Below(6) == 0) {
        disk.put_error = absl::UnavailableError("the disk is away");
      }
      table.Push({rows}, {.clock = clock, .learning_rate = 0.1f}).IgnoreError();
      Gradients read;
      std::vector<int64_t> keys;
      for (uint64_t i = random.Below(40); i > 0; --i) {
        keys.push_back(static_cast<int64_t>(random.Below(2000)) - 1000);
      }
      std::sort(keys.begin(), keys.end());
      keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
      ASSERT_TRUE(table.Read(keys, clock, &read).ok());
      if (random.Below(2) == 0) {
        table.Maintain(clock).IgnoreError();
      }
      disk.put_error = absl::OkStatus();
      // Some checkpoints fail: the copy stays where it is.
      const bool fails = random.Below(4) == 0;
      TableShard& shard = table.shard();
      Copy next = copy;
      for (uint32_t id = 0; id < shard.partitions(); ++id) {
        const ChangedKeys::Changes changes = shard.CloseChanges(id, base, cut);
        RowBatch batch;
        std::vector<int64_t> gone;
        if (changes.all) {
          for (auto row = next.begin(); row != next.end();) {
            const uint32_t slot = table.map().SlotOf(row->first);
            const std::vector<uint32_t> of = shard.SlotsOf(id);
            row = std::binary_search(of.begin(), of.end(), slot)
                      ? next.erase(row)
                      : std::next(row);
          }
          RowCursor cursor;
          while (!cursor.done) {
            ASSERT_TRUE(shard.ExportRows(id, {}, 10000, &cursor, &batch).ok());
          }
        } else {
          ASSERT_TRUE(shard.ExportKeys(id, changes.keys, &batch, &gone).ok());
          EXPECT_EQ(batch.count + gone.size(), changes.keys.size());
          written += batch.count;
        }
        Take(shard, batch, &next);
        for (const int64_t key : gone) gone_rows += next.erase(key);
      }
      const Copy all = All(&shard);
      ASSERT_TRUE(next == all) << "cut " << cut;
      if (base > 0) all_rows += all.size();
      if (fails) continue;
      copy = std::move(next);
      base = cut;
    }
    loaded += table.Stats().loaded_rows;
    EXPECT_GT(table.Stats().spilled_rows, 0u);
  }
  EXPECT_GT(written, 0u);
  EXPECT_LT(written, all_rows) << "all rows were written each time";
  EXPECT_GT(gone_rows, 0u) << "no row expired";
  EXPECT_GT(loaded, 0u) << "no row came back from the disk";
}

}  // namespace
}  // namespace syncline::ps
