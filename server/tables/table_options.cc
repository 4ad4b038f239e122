#include "server/tables/table_options.h"

#include <utility>

namespace syncline::ps {

void TableStats::Add(const TableStats& other) {
  rows_in_memory += other.rows_in_memory;
  rows_on_disk += other.rows_on_disk;
  memory_bytes += other.memory_bytes;
  memory_limit_bytes = other.memory_limit_bytes;
  disk_bytes = other.disk_bytes;
  disk_limit_bytes = other.disk_limit_bytes;
  read_from_memory += other.read_from_memory;
  read_from_disk += other.read_from_disk;
  read_absent += other.read_absent;
  unreadable_rows += other.unreadable_rows;
  pushed_rows += other.pushed_rows;
  refused_by_sightings += other.refused_by_sightings;
  refused_by_probability += other.refused_by_probability;
  refused_by_budget += other.refused_by_budget;
  expired_by_age += other.expired_by_age;
  expired_by_score += other.expired_by_score;
  spilled_rows += other.spilled_rows;
  loaded_rows += other.loaded_rows;
  hot_keys = HotKeys::Merge(std::move(hot_keys), other.hot_keys);
}

}  // namespace syncline::ps
