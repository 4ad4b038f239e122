// Goal: counts of lanes add up, what is the table's is not counted twice.
// Method: two drawn lanes.

#include "server/tables/table_options.h"

#include "gtest/gtest.h"

namespace syncline::ps {
namespace {

TEST(TableStatsTest, LanesAddUp) {
  TableStats a;
  a.rows_in_memory = 3;
  a.memory_limit_bytes = 100;
  a.disk_bytes = 7;
  a.expired_by_score = 2;
  a.hot_keys = {{1, 5}};
  TableStats b = a;
  b.rows_in_memory = 4;
  b.hot_keys = {{2, 6}};
  a.Add(b);
  EXPECT_EQ(a.rows_in_memory, 7u);
  EXPECT_EQ(a.memory_limit_bytes, 100u);
  EXPECT_EQ(a.disk_bytes, 7u);
  EXPECT_EQ(a.expired_by_score, 4u);
  ASSERT_EQ(a.hot_keys.size(), 2u);
  EXPECT_EQ(a.hot_keys[0].key, 2);
}

}  // namespace
}  // namespace syncline::ps
