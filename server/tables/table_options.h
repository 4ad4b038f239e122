#ifndef SYNCLINE_SERVER_TABLES_TABLE_OPTIONS_H_
#define SYNCLINE_SERVER_TABLES_TABLE_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/update/row_expiry.h"
#include "kernels/optimizer/optimizer.h"
#include "kernels/optimizer/row_initializer.h"
#include "server/tables/hot_keys.h"

namespace syncline::ps {

// When a key gets a row. See AdmissionSpec in proto/job_spec.proto.
struct AdmissionOptions {
  uint32_t min_sightings = 1;  // 1..255; above 1 needs filter_bytes
  double probability = 1;      // (0, 1]
  uint64_t filter_bytes = 0;   // of the table's memory
};

struct TableOptions {
  std::string name;   // for messages
  uint32_t dim = 0;   // 1..65,536
  uint64_t seed = 0;  // the job's; admission draws from it
  RowInitializer initializer{RowInitializer::Scheme::kZeros, 0, 0, ""};
  OptimizerParams optimizer;
  AdmissionOptions admission;
  ExpiryOptions expiry;
  // Hard limit for rows, slots, index and filter; what the cold store needs in
  // memory comes on top and is bounded by the store's own options.
  uint64_t memory_bytes = 0;
};

// Counts since the table was made; sizes as they are.
struct TableStats {
  uint64_t rows_in_memory = 0;
  uint64_t rows_on_disk = 0;  // and not in memory
  uint64_t memory_bytes = 0;
  uint64_t memory_limit_bytes = 0;
  uint64_t disk_bytes = 0;
  uint64_t disk_limit_bytes = 0;
  // Rows that Read was asked for, by where they were found.
  uint64_t read_from_memory = 0;
  uint64_t read_from_disk = 0;
  uint64_t read_absent = 0;
  // Times that a row was asked for whose copy on disk did not read back.
  uint64_t unreadable_rows = 0;
  // Rows that Push was given, after merging, and those of them without effect.
  uint64_t pushed_rows = 0;
  uint64_t refused_by_sightings = 0;
  uint64_t refused_by_probability = 0;
  uint64_t refused_by_budget = 0;  // no room, or admission was tightened
  // Rows that went.
  uint64_t expired_by_age = 0;
  uint64_t expired_by_score = 0;
  uint64_t spilled_rows = 0;  // written to disk
  uint64_t loaded_rows = 0;   // back into memory
  std::vector<HotKey> hot_keys;

  // Sums what lanes count and hold, and keeps the hottest keys of both. The
  // limits and disk_bytes are the table's, alike in every lane: kept as they
  // are.
  void Add(const TableStats& other);
};

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_TABLES_TABLE_OPTIONS_H_
