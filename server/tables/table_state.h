#ifndef SYNCLINE_SERVER_TABLES_TABLE_STATE_H_
#define SYNCLINE_SERVER_TABLES_TABLE_STATE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/update/row_expiry.h"
#include "server/tables/hot_keys.h"
#include "server/tables/space_saving.h"
#include "server/tables/table_options.h"

namespace syncline::ps {

// Rows on their way out of a table, or into one.
//
// A row is as in memory (row_layout.h), with everything that a later update
// depends on: key, score, clock, values, optimizer state. Its place says where
// it was.
struct RowBatch {
  static constexpr uint8_t kInMemory = 0x01;  // else on disk
  static constexpr uint8_t kRead = 0x02;      // since its last chance to spill

  size_t count = 0;
  std::string rows;    // count x RowLayout::bytes()
  std::string places;  // a byte a row
};

// Where an export of a partition's rows goes on. It lists the rows that are in
// memory once, 16 bytes each, and looks each up when its turn comes, so
// rows may move between memory and disk meanwhile.
struct RowCursor {
  bool started = false;
  bool done = false;
  std::vector<std::pair<uint64_t, int64_t>> resident;  // position, key
  size_t next = 0;                                     // of them
  uint64_t from = 0;                                   // position
};

// The state of a lane's part of a table, besides its rows and filters.
struct TableLaneState {
  TableStats counts;  // sizes are 0
  std::vector<HotKeys::Entry> hot_keys;
  std::vector<SpaceSaving::Counter> refused;  // pushes of keys without a row
  uint64_t refused_uncounted_max = 0;
  ClockHistory::Past past;
};

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_TABLES_TABLE_STATE_H_
