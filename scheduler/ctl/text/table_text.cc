#include "scheduler/ctl/text/table_text.h"

#include <algorithm>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "scheduler/ctl/text/job_text.h"

namespace syncline::ctl {
namespace {

using Table = ShardStatus::Table;

constexpr size_t kHotKeysShown = 8;
// The ps of a job that runs report more often.
constexpr double kNewSeconds = 10;

std::string Percent(uint64_t part, uint64_t whole) {
  return whole == 0
             ? "-"
             : absl::StrFormat("%.1f%%", 100.0 * static_cast<double>(part) /
                                             static_cast<double>(whole));
}

std::string OfLimit(uint64_t bytes, uint64_t limit) {
  return limit == 0
             ? FormatBytes(bytes)
             : absl::StrCat(FormatBytes(bytes), " of ", FormatBytes(limit));
}

// Of all ps.
Table Sum(const JobTableStatus& status, int index) {
  Table sum;
  for (const JobTableStatus::Ps& ps : status.ps()) {
    if (index >= ps.tables_size()) continue;
    const Table& table = ps.tables(index);
    sum.set_name(table.name());
    const google::protobuf::Reflection* const reflection =
        Table::GetReflection();
    const google::protobuf::Descriptor* const type = Table::GetDescriptor();
    for (int f = 0; f < type->field_count(); ++f) {
      const google::protobuf::FieldDescriptor* const field = type->field(f);
      if (field->cpp_type() !=
          google::protobuf::FieldDescriptor::CPPTYPE_UINT64) {
        continue;
      }
      reflection->SetUInt64(&sum, field,
                            reflection->GetUInt64(sum, field) +
                                reflection->GetUInt64(table, field));
    }
    sum.mutable_hot_keys()->MergeFrom(table.hot_keys());
  }
  return sum;
}

std::string HotKeysText(const Table& table) {
  std::vector<Table::HotKey> keys(table.hot_keys().begin(),
                                  table.hot_keys().end());
  std::sort(keys.begin(), keys.end(), [](const auto& a, const auto& b) {
    return a.pushes() > b.pushes();
  });
  keys.resize(std::min(keys.size(), kHotKeysShown));
  return absl::StrJoin(keys, ", ", [](std::string* out, const auto& hot) {
    absl::StrAppend(out, hot.key(), " (", FormatCount(hot.pushes()));
    if (hot.refused() > 0) {
      absl::StrAppend(out, ", refused ", FormatCount(hot.refused()));
    }
    absl::StrAppend(out, ")");
  });
}

void AppendTable(const JobTableStatus& status, int index, std::string* out) {
  const Table sum = Sum(status, index);
  const uint64_t pulled =
      sum.pulled_from_memory() + sum.pulled_from_disk() + sum.pulled_absent();
  const auto line = [out](absl::string_view name, const auto&... text) {
    absl::StrAppend(out, "  ", absl::StrFormat("%-9s", std::string(name)),
                    text..., "\n");
  };
  absl::StrAppend(out, "table ", sum.name(), "\n");
  line("rows", FormatCount(sum.rows_in_memory()), " in memory, ",
       FormatCount(sum.rows_on_disk()), " on disk");
  line("memory", OfLimit(sum.memory_bytes(), sum.memory_limit_bytes()));
  line("disk", OfLimit(sum.disk_bytes(), sum.disk_limit_bytes()));
  line("pulled", FormatCount(pulled),
       " rows: ", Percent(sum.pulled_from_memory(), pulled), " from memory, ",
       Percent(sum.pulled_from_disk(), pulled), " from disk, ",
       Percent(sum.pulled_absent(), pulled), " not there yet");
  line("pushed", FormatCount(sum.pushed_rows()), " rows");
  line("refused", FormatCount(sum.refused_by_sightings()), " seen too rarely, ",
       FormatCount(sum.refused_by_probability()), " by chance, ",
       FormatCount(sum.refused_by_budget()), " for want of room");
  line("expired", FormatCount(sum.expired_by_age()), " by age, ",
       FormatCount(sum.expired_by_score()), " by score");
  line("spilled", FormatCount(sum.spilled_rows()), " rows to disk");
  if (!sum.hot_keys().empty()) line("hottest", HotKeysText(sum));
  for (const JobTableStatus::Ps& ps : status.ps()) {
    if (index >= ps.tables_size()) continue;
    const Table& table = ps.tables(index);
    line(absl::StrCat("ps:", ps.rank()),
         FormatCount(table.rows_in_memory() + table.rows_on_disk()), " rows, ",
         OfLimit(table.memory_bytes(), table.memory_limit_bytes()), ", ",
         FormatBytes(table.disk_bytes()), " on disk");
  }
}

}  // namespace

std::string TablesText(const JobTableStatus& status) {
  int tables = 0;
  for (const JobTableStatus::Ps& ps : status.ps()) {
    tables = std::max(tables, ps.tables_size());
  }
  if (tables == 0) {
    return absl::StrCat("job ", status.job_id(),
                        ": no ps has reported a table\n");
  }
  std::string text;
  for (int i = 0; i < tables; ++i) AppendTable(status, i, &text);
  double age_seconds = 0;
  for (const JobTableStatus::Ps& ps : status.ps()) {
    age_seconds = std::max(age_seconds, ps.age_seconds());
  }
  if (age_seconds > kNewSeconds) {
    absl::StrAppend(&text, "as of ", FormatElapsed(absl::Seconds(age_seconds)),
                    " ago\n");
  }
  return text;
}

}  // namespace syncline::ctl
