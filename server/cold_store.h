#ifndef SYNCLINE_SERVER_COLD_STORE_H_
#define SYNCLINE_SERVER_COLD_STORE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace syncline {

// Where the rows of one table go that its memory has no room for. A row is
// `row_bytes` bytes of the table's own (bookkeeping, values, optimizer slots);
// it is found by (partition, key), and kept in that order. Thread-safe; calls
// block on the disk.
//
// Errors, the same for every call; each message names the folder:
//   ResourceExhausted  the disk or the bytes allowed on it are full
//   DataLoss           what was written does not read back as it was
//   Unavailable        the disk does not answer as it should
class ColdStore {
 public:
  virtual ~ColdStore() = default;

  // Writes rows of one partition, all or none; an older row of the same key is
  // replaced. `rows` is keys.size() x row_bytes.
  virtual absl::Status Put(uint32_t partition, absl::Span<const int64_t> keys,
                           const char* rows) = 0;

  // Looks for rows of one partition. found[i] says whether rows + i x row_bytes
  // was written.
  virtual absl::Status Get(uint32_t partition, absl::Span<const int64_t> keys,
                           char* rows, bool* found) = 0;

  // Forgets rows of one partition. Absent ones are ignored.
  virtual absl::Status Delete(uint32_t partition,
                              absl::Span<const int64_t> keys) = 0;

  // Appends up to `limit` rows of one partition with a key of at least `from`,
  // by key.
  virtual absl::Status Scan(uint32_t partition, int64_t from, size_t limit,
                            std::vector<int64_t>* keys,
                            std::vector<char>* rows) = 0;

  // Bytes on disk, older versions of rows included, and how many are allowed.
  virtual uint64_t disk_bytes() const = 0;
  virtual uint64_t disk_limit_bytes() const = 0;
};

}  // namespace syncline

#endif  // SYNCLINE_SERVER_COLD_STORE_H_
