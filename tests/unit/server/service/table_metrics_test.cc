// Goal: what a job's tables report becomes series of that job. Method: tables
// of one name on several shards, and the text that is served.

#include "server/service/table_metrics.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline::ps {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

ShardStatus::Table Emb(uint64_t rows, uint64_t pushed, uint64_t hottest) {
  ShardStatus::Table table;
  table.set_name("emb");
  table.set_rows_in_memory(rows);
  table.set_rows_on_disk(2);
  table.set_pushed_rows(pushed);
  table.set_refused_by_budget(2 * pushed);
  table.add_hot_keys()->set_pushes(hottest);
  table.mutable_hot_keys(0)->set_refused(1);
  return table;
}

std::string Rendered(const std::vector<ShardStatus::Table>& tables) {
  MetricsRegistry registry;
  const auto collecting = registry.AddCollector([&](MetricSamples* samples) {
    CollectTableMetrics("j-1", tables, samples);
  });
  return registry.Render();
}

TEST(TableMetricsTest, ShardsAddUpButTheHottestKeyIsOne) {
  EXPECT_THAT(
      Rendered({Emb(10, 5, 7), Emb(4, 3, 9)}),
      AllOf(HasSubstr("syncline_ps_table_rows{job=\"j-1\",table=\"emb\",tier="
                      "\"memory\"} 14\n"),
            HasSubstr("tier=\"disk\"} 4\n"),
            HasSubstr("syncline_ps_table_pushed_rows_total{job=\"j-1\",table="
                      "\"emb\"} 8\n"),
            HasSubstr("reason=\"budget\",table=\"emb\"} 16\n"),
            HasSubstr("hottest_pushes{job=\"j-1\",table=\"emb\"} 9\n"),
            HasSubstr("hottest_refused_pushes{job=\"j-1\",table=\"emb\"} "
                      "1\n")));
}

TEST(TableMetricsTest, TablesAreApartByName) {
  ShardStatus::Table other = Emb(1, 1, 1);
  other.set_name("other");
  EXPECT_THAT(Rendered({Emb(10, 5, 7), other}),
              AllOf(HasSubstr("table=\"emb\",tier=\"memory\"} 10\n"),
                    HasSubstr("table=\"other\",tier=\"memory\"} 1\n")));
}

TEST(TableMetricsTest, WithoutTablesThereIsNothing) {
  EXPECT_THAT(Rendered({}), Not(HasSubstr("syncline_ps_table")));
}

}  // namespace
}  // namespace syncline::ps
