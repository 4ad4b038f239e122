#ifndef SYNCLINE_SERVER_COLD_STORE_H_
#define SYNCLINE_SERVER_COLD_STORE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace syncline {

// What a spilled row is found by. Rows are kept in this order.
struct ColdKey {
  uint32_t partition = 0;
  int64_t key = 0;
};

// Where the rows of one table go that its memory has no room for. A row is
// `row_bytes` bytes of the table's own (bookkeeping, values, optimizer slots),
// the same for all. Thread-safe; calls block on the disk.
//
// Errors, the same for every call; each message names the folder:
//   ResourceExhausted  the disk, or what is allowed of it, is full
//   DataLoss           what was written does not read back as it was
//   Unavailable        the disk does not answer as it should
class ColdStore {
 public:
  virtual ~ColdStore() = default;

  // Writes rows [keys.size() x row_bytes], all or none; older rows of the same
  // keys are replaced.
  virtual absl::Status Put(absl::Span<const ColdKey> keys,
                           const char* rows) = 0;

  // Looks for rows: found[i] says whether keys[i] was written, rows + i x
  // row_bytes then has it. Ascending keys are cheapest.
  virtual absl::Status Get(absl::Span<const ColdKey> keys, char* rows,
                           bool* found) = 0;

  // Forgets rows. Absent ones are ignored.
  virtual absl::Status Delete(absl::Span<const ColdKey> keys) = 0;

  // Appends up to `limit` rows of from.partition with keys of at least
  // from.key.
  virtual absl::Status Scan(ColdKey from, size_t limit,
                            std::vector<int64_t>* keys,
                            std::vector<char>* rows) = 0;

  // Bytes on disk, older versions of rows included, and how many are allowed.
  virtual uint64_t disk_bytes() const = 0;
  virtual uint64_t disk_limit_bytes() const = 0;
};

}  // namespace syncline

#endif  // SYNCLINE_SERVER_COLD_STORE_H_
