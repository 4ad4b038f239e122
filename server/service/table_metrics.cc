#include "server/service/table_metrics.h"

#include <algorithm>
#include <map>
#include <vector>

namespace syncline::ps {
namespace {

using Table = ShardStatus::Table;
using Value = uint64_t (Table::*)() const;
using Labels = MetricSamples::Labels;

struct TableMetric {
  const char* name;
  const char* label;  // besides the job's and the table's; null: none
  const char* label_value;
  Value value;
};

constexpr char kRows[] = "syncline_ps_table_rows";
constexpr char kBytes[] = "syncline_ps_table_bytes";
constexpr char kLimit[] = "syncline_ps_table_limit_bytes";
constexpr char kPulled[] = "syncline_ps_table_pulled_rows_total";
constexpr char kRefused[] = "syncline_ps_table_refused_rows_total";
constexpr char kExpired[] = "syncline_ps_table_expired_rows_total";
constexpr TableMetric kSums[] = {
    {kRows, "tier", "memory", &Table::rows_in_memory},
    {kRows, "tier", "disk", &Table::rows_on_disk},
    {kBytes, "tier", "memory", &Table::memory_bytes},
    {kBytes, "tier", "disk", &Table::disk_bytes},
    {kLimit, "tier", "memory", &Table::memory_limit_bytes},
    {kLimit, "tier", "disk", &Table::disk_limit_bytes},
    {kPulled, "from", "memory", &Table::pulled_from_memory},
    {kPulled, "from", "disk", &Table::pulled_from_disk},
    {kPulled, "from", "absent", &Table::pulled_absent},
    {"syncline_ps_table_pushed_rows_total", nullptr, nullptr,
     &Table::pushed_rows},
    {kRefused, "reason", "sightings", &Table::refused_by_sightings},
    {kRefused, "reason", "probability", &Table::refused_by_probability},
    {kRefused, "reason", "budget", &Table::refused_by_budget},
    {kExpired, "reason", "age", &Table::expired_by_age},
    {kExpired, "reason", "score", &Table::expired_by_score},
    {"syncline_ps_table_spilled_rows_total", nullptr, nullptr,
     &Table::spilled_rows},
};

// Of one table, on all shards.
void CollectTable(const Labels& labels, absl::Span<const Table* const> shards,
                  MetricSamples* samples) {
  for (const TableMetric& metric : kSums) {
    uint64_t sum = 0;
    for (const Table* table : shards) sum += (table->*metric.value)();
    Labels all = labels;
    if (metric.label != nullptr) all[metric.label] = metric.label_value;
    samples->Add(metric.name, all, static_cast<double>(sum));
  }
  uint64_t hottest = 0;
  uint64_t refused = 0;
  for (const Table* table : shards) {
    for (const Table::HotKey& key : table->hot_keys()) {
      hottest = std::max<uint64_t>(hottest, key.pushes());
      refused = std::max<uint64_t>(refused, key.refused());
    }
  }
  samples->Add("syncline_ps_table_hottest_pushes", labels,
               static_cast<double>(hottest));
  samples->Add("syncline_ps_table_hottest_refused_pushes", labels,
               static_cast<double>(refused));
}

}  // namespace

void CollectTableMetrics(const std::string& job_id,
                         absl::Span<const Table> tables,
                         MetricSamples* samples) {
  std::map<std::string, std::vector<const Table*>> by_name;
  for (const Table& table : tables) by_name[table.name()].push_back(&table);
  for (const auto& [name, shards] : by_name) {
    CollectTable({{"job", job_id}, {"table", name}}, shards, samples);
  }
}

}  // namespace syncline::ps
