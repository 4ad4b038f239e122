#include "server/service/table_metrics.h"

#include <algorithm>
#include <vector>

namespace syncline::ps {
namespace {

using Table = ShardStatus::Table;
using Value = uint64_t (Table::*)() const;

struct TableMetric {
  const char* name;
  const char* help;
  const char* label;  // besides the table's; null: none
  const char* label_value;
  Value value;
};

constexpr char kRows[] = "syncline_ps_table_rows";
constexpr char kRowsHelp[] = "Rows of the table on this ps.";
constexpr char kBytes[] = "syncline_ps_table_bytes";
constexpr char kBytesHelp[] = "Bytes that the table takes on this ps.";
constexpr char kLimit[] = "syncline_ps_table_limit_bytes";
constexpr char kLimitHelp[] = "Bytes that the table may take on this ps.";
constexpr TableMetric kGauges[] = {
    {kRows, kRowsHelp, "tier", "memory", &Table::rows_in_memory},
    {kRows, kRowsHelp, "tier", "disk", &Table::rows_on_disk},
    {kBytes, kBytesHelp, "tier", "memory", &Table::memory_bytes},
    {kBytes, kBytesHelp, "tier", "disk", &Table::disk_bytes},
    {kLimit, kLimitHelp, "tier", "memory", &Table::memory_limit_bytes},
    {kLimit, kLimitHelp, "tier", "disk", &Table::disk_limit_bytes},
};

constexpr char kPulled[] = "syncline_ps_table_pulled_rows_total";
constexpr char kPulledHelp[] = "Pulled rows by where they were found.";
constexpr char kRefused[] = "syncline_ps_table_refused_rows_total";
constexpr char kRefusedHelp[] = "Pushed rows without effect, by cause.";
constexpr char kExpired[] = "syncline_ps_table_expired_rows_total";
constexpr char kExpiredHelp[] = "Rows that went, by cause.";
constexpr TableMetric kCounters[] = {
    {kPulled, kPulledHelp, "from", "memory", &Table::pulled_from_memory},
    {kPulled, kPulledHelp, "from", "disk", &Table::pulled_from_disk},
    {kPulled, kPulledHelp, "from", "absent", &Table::pulled_absent},
    {"syncline_ps_table_pushed_rows_total", "Rows that were pushed.", nullptr,
     nullptr, &Table::pushed_rows},
    {kRefused, kRefusedHelp, "reason", "sightings",
     &Table::refused_by_sightings},
    {kRefused, kRefusedHelp, "reason", "probability",
     &Table::refused_by_probability},
    {kRefused, kRefusedHelp, "reason", "budget", &Table::refused_by_budget},
    {kExpired, kExpiredHelp, "reason", "age", &Table::expired_by_age},
    {kExpired, kExpiredHelp, "reason", "score", &Table::expired_by_score},
    {"syncline_ps_table_spilled_rows_total",
     "Rows that were written from memory to disk.", nullptr, nullptr,
     &Table::spilled_rows},
};

MetricsRegistry::Labels LabelsOf(const TableMetric& metric,
                                 const std::string& table) {
  MetricsRegistry::Labels labels = {{"table", table}};
  if (metric.label != nullptr) labels[metric.label] = metric.label_value;
  return labels;
}

}  // namespace

void TableMetrics::Set(const std::string& job_id, uint32_t shard,
                       const Table& table) {
  Table& last = last_[job_id][{table.name(), shard}];
  AddCounts(last, table);
  last = table;
  SetGauges(table.name());
}

void TableMetrics::GoOn(const std::string& job_id, uint32_t shard,
                        const Table& table) {
  last_[job_id][{table.name(), shard}] = table;
  SetGauges(table.name());
}

void TableMetrics::Forget(const std::string& job_id) {
  const auto gone = last_.extract(job_id);
  if (gone.empty()) return;
  for (const auto& [part, table] : gone.mapped()) SetGauges(part.first);
}

void TableMetrics::SetGauges(const std::string& name) {
  std::vector<const Table*> tables;
  for (const auto& [job, of_job] : last_) {
    for (auto part = of_job.lower_bound({name, 0});
         part != of_job.end() && part->first.first == name; ++part) {
      tables.push_back(&part->second);
    }
  }
  for (const TableMetric& metric : kGauges) {
    uint64_t sum = 0;
    for (const Table* table : tables) sum += (table->*metric.value)();
    registry_->AddGauge(metric.name, metric.help, LabelsOf(metric, name))
        .Set(static_cast<double>(sum));
  }
  uint64_t hottest = 0;
  for (const Table* table : tables) {
    if (table->hot_keys().empty()) continue;
    hottest = std::max<uint64_t>(hottest, table->hot_keys(0).pushes());
  }
  registry_
      ->AddGauge("syncline_ps_table_hottest_pushes",
                 "Pushes of the table's most frequent key, at most.",
                 {{"table", name}})
      .Set(static_cast<double>(hottest));
  uint64_t refused = 0;
  for (const Table* table : tables) {
    for (const Table::HotKey& key : table->hot_keys()) {
      refused = std::max<uint64_t>(refused, key.refused());
    }
  }
  registry_
      ->AddGauge("syncline_ps_table_hottest_refused_pushes",
                 "Pushes without effect of the hot key that had most of them, "
                 "at most.",
                 {{"table", name}})
      .Set(static_cast<double>(refused));
}

void TableMetrics::AddCounts(const Table& before, const Table& now) {
  for (const TableMetric& metric : kCounters) {
    registry_
        ->AddCounter(metric.name, metric.help, LabelsOf(metric, now.name()))
        .Add((now.*metric.value)() - (before.*metric.value)());
  }
}

}  // namespace syncline::ps
