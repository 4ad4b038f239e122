// Goal: rows stay where they are and keep what is in them while others come and
// go, in the memory that was planned.
// Method: seeded additions and removals against a map.

#include "server/tables/row_partition.h"

#include <algorithm>
#include <map>
#include <vector>

#include "common/base/random.h"
#include "gtest/gtest.h"

namespace syncline::ps {
namespace {

class RowPartitionTest : public testing::Test {
 protected:
  static constexpr uint32_t kRowsPerSlab = 16;

  const RowLayout layout_{4, 1};
  SlabPool pool_{kRowsPerSlab * layout_.bytes(), false};
};

TEST_F(RowPartitionTest, IsAMap) {
  constexpr uint32_t kRowsMax = 3000;
  RowPartition partition(layout_, &pool_, kRowsPerSlab, kRowsMax);
  std::map<int64_t, uint32_t> rows;
  Random random(1);
  for (int i = 0; i < 100000; ++i) {
    const int64_t key = static_cast<int64_t>(random.Below(5000)) - 2500;
    const uint64_t hash = RowPartition::Hash(key);
    const uint32_t row = partition.Find(key, hash);
    const auto mine = rows.find(key);
    ASSERT_EQ(row, mine == rows.end() ? RowPartition::kNone : mine->second);
    if (row == RowPartition::kNone) {
      if (partition.full()) continue;
      const uint32_t added = partition.Add(key, hash, 1);
      RowLayout::Values(partition.At(added))[3] = static_cast<float>(key);
      rows[key] = added;
    } else {
      ASSERT_EQ(RowLayout::Values(partition.At(row))[3],
                static_cast<float>(key));
      if (random.Below(2) == 0) {
        partition.Remove(row);
        rows.erase(key);
      }
    }
    ASSERT_EQ(partition.size(), rows.size());
    ASSERT_LE(partition.row_limit(), kRowsMax);
  }
  uint32_t marked = 0;
  for (uint32_t row = 0; row < partition.row_limit(); ++row) {
    marked += partition.mark(row) != 0;
  }
  EXPECT_EQ(marked, rows.size());
}

TEST_F(RowPartitionTest, TakesWhatWasPlanned) {
  for (const uint64_t bytes : {10000, 100000, 1000000}) {
    const uint32_t rows = RowPartition::RowsFor(layout_.bytes(), bytes) /
                          kRowsPerSlab * kRowsPerSlab;
    RowPartition partition(layout_, &pool_, kRowsPerSlab, rows);
    for (int64_t key = 0; !partition.full(); ++key) {
      partition.Add(key, RowPartition::Hash(key), 1);
      ASSERT_LE(partition.memory_bytes(), bytes);
    }
    EXPECT_GT(partition.memory_bytes(), bytes * 9 / 10);
    // Rows that come and go take no more.
    for (int64_t key = 0; key < 10 * int64_t{rows}; ++key) {
      partition.Remove(partition.Find(key, RowPartition::Hash(key)));
      const int64_t next = key + rows;
      partition.Add(next, RowPartition::Hash(next), 1);
    }
    EXPECT_LE(partition.memory_bytes(), bytes);
  }
}

TEST_F(RowPartitionTest, GrowsInSmallSteps) {
  RowPartition partition(layout_, &pool_, kRowsPerSlab, 1 << 20);
  double most = 0;
  for (int64_t key = 0; key < 100000; ++key) {
    partition.Add(key, RowPartition::Hash(key), 1);
    if (key < 1000) continue;
    const double payload = static_cast<double>(layout_.bytes() * (key + 1));
    most =
        std::max(most, static_cast<double>(partition.memory_bytes()) / payload);
  }
  EXPECT_LT(most, 1.25);
}

TEST_F(RowPartitionTest, SpilledBytesAreTheRowWithoutItsKey) {
  std::vector<char> row(layout_.bytes());
  RowLayout::SetKey(row.data(), -9);
  RowLayout::SetPast(row.data(), 2.5f, 77);
  RowLayout::Values(row.data())[0] = 4;
  layout_.State(row.data())[0] = 6;
  EXPECT_EQ(layout_.bytes(), 8u + 4 + 4 + 4 * 4 + 4);
  EXPECT_EQ(layout_.spilled_bytes(), layout_.bytes() - 8);
  const char* const spilled = RowLayout::Spilled(row.data());
  EXPECT_EQ(RowLayout::SpilledScore(spilled), 2.5f);
  EXPECT_EQ(RowLayout::SpilledClock(spilled), 77u);
  EXPECT_EQ(RowLayout::SpilledValues(spilled)[0], 4);
  EXPECT_EQ(RowLayout::SpilledValues(spilled)[4], 6);
  EXPECT_EQ(RowLayout::Key(row.data()), -9);
}

}  // namespace
}  // namespace syncline::ps
