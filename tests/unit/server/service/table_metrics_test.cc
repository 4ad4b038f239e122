// Goal: what a table reports becomes metrics, counts go on over jobs, and a job
// that ended holds nothing. Method: two jobs with a table of the same name, and
// the text that is served.

#include "server/service/table_metrics.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline::ps {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

ShardStatus::Table Emb(uint64_t rows, uint64_t pushed) {
  ShardStatus::Table table;
  table.set_name("emb");
  table.set_rows_in_memory(rows);
  table.set_pushed_rows(pushed);
  table.set_refused_by_budget(2 * pushed);
  return table;
}

TEST(TableMetricsTest, CountsGoOnOverJobs) {
  MetricsRegistry registry;
  TableMetrics metrics(&registry);
  metrics.Set("j-1", 0, Emb(10, 5));
  metrics.Set("j-1", 0, Emb(12, 8));
  EXPECT_THAT(registry.Render(),
              HasSubstr("syncline_ps_table_rows{table=\"emb\",tier=\"memory\"} "
                        "12"));
  metrics.Forget("j-1");
  EXPECT_THAT(registry.Render(),
              HasSubstr("syncline_ps_table_rows{table=\"emb\",tier=\"memory\"} "
                        "0"));
  metrics.Set("j-2", 0, Emb(1, 1));
  const std::string text = registry.Render();
  EXPECT_THAT(text, HasSubstr("syncline_ps_table_pushed_rows_total{table="
                              "\"emb\"} 9"));
  EXPECT_THAT(text, HasSubstr("reason=\"budget\",table=\"emb\"} 18"));
}

TEST(TableMetricsTest, ShardsAddUpAndGoOnFromEarlierOnes) {
  MetricsRegistry registry;
  TableMetrics metrics(&registry);
  metrics.Set("j-1", 0, Emb(10, 5));
  metrics.Set("j-1", 2, Emb(4, 3));
  // The job goes to a routing with one shard here, which has the counts of
  // both.
  metrics.Forget("j-1");
  metrics.GoOn("j-1", 1, Emb(14, 8));
  metrics.Set("j-1", 1, Emb(15, 10));
  const std::string text = registry.Render();
  EXPECT_THAT(text, HasSubstr("syncline_ps_table_rows{table=\"emb\",tier="
                              "\"memory\"} 15"));
  EXPECT_THAT(text, HasSubstr("syncline_ps_table_pushed_rows_total{table="
                              "\"emb\"} 10"));
}

TEST(TableMetricsTest, JobsWithATableOfOneNameAddUp) {
  MetricsRegistry registry;
  TableMetrics metrics(&registry);
  const auto shows = [&](const std::string& rows, const std::string& hottest) {
    EXPECT_THAT(
        registry.Render(),
        AllOf(HasSubstr("syncline_ps_table_rows{table=\"emb\",tier="
                        "\"memory\"} " +
                        rows + "\n"),
              HasSubstr("hottest_pushes{table=\"emb\"} " + hottest + "\n")));
  };
  ShardStatus::Table hot = Emb(10, 5);
  hot.add_hot_keys()->set_pushes(7);
  metrics.Set("j-1", 0, hot);
  ShardStatus::Table cool = Emb(30, 2);
  cool.add_hot_keys()->set_pushes(3);
  metrics.Set("j-2", 0, cool);
  shows("40", "7");
  metrics.Set("j-1", 0, hot);
  shows("40", "7");
  EXPECT_THAT(registry.Render(),
              HasSubstr("pushed_rows_total{table=\"emb\"} 7"));
  metrics.Forget("j-1");
  shows("30", "3");
  metrics.Forget("j-2");
  metrics.Forget("j-2");
  shows("0", "0");
}

}  // namespace
}  // namespace syncline::ps
