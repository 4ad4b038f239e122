#ifndef SYNCLINE_SERVER_TABLES_COLD_STORE_H_
#define SYNCLINE_SERVER_TABLES_COLD_STORE_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/base/random.h"

namespace syncline::ps {

// The key that a spilled row is found by.
struct ColdKey {
  uint32_t partition = 0;
  int64_t key = 0;
};

// The place of a key within its partition: spilled rows are kept and scanned in
// this order. Distinct keys have distinct positions, spread evenly also among
// the keys of a few virtual slots, which share the hash's upper bits.
inline uint64_t ColdPosition(int64_t key) {
  return std::rotl(Mix64(static_cast<uint64_t>(key)), 16);
}

enum class ColdFound : uint8_t {
  kNo,
  kYes,
  kUnreadable,  // it may have been written; it does not read back as it was
};

// Keeps the rows of one table that its memory has no room for. A row is
// `row_bytes` bytes of the table's own (bookkeeping, values, optimizer slots),
// the same for all. Calls block on the disk; those that name different
// partitions may run at the same time, those for one partition may not.
//
// Errors, the same for every call; each message names the folder:
//   ResourceExhausted  the disk, or what is allowed of it, is full
//   DataLoss           what was written does not read back as it was
//   Unavailable        the disk does not answer as it should
// Errors are not kept: a later call may succeed.
class ColdStore {
 public:
  virtual ~ColdStore() = default;

  // Writes rows [keys.size() x row_bytes]; older rows of the same keys are
  // replaced. After an error any of them may have been, and the others are as
  // they were.
  virtual absl::Status Put(absl::Span<const ColdKey> keys,
                           const char* rows) = 0;

  // Looks for rows: found[i] says whether keys[i] was written, rows + i x
  // row_bytes then has it. Of an error those rows are kUnreadable that it
  // concerns, and the others are there.
  virtual absl::Status Get(absl::Span<const ColdKey> keys, char* rows,
                           ColdFound* found) = 0;

  // Forgets rows. Absent ones are ignored. After an error any of them may be
  // gone; *gone is of how many it is certain that they are.
  virtual absl::Status Delete(absl::Span<const ColdKey> keys, size_t* gone) = 0;

  // Appends up to `limit` rows of a partition with positions of at least
  // `from`, in order. A row that cannot be read fails the scan (kFails: the
  // caller needs all rows) or is left out.
  enum class Damaged { kFails, kLeftOut };
  virtual absl::Status Scan(uint32_t partition, uint64_t from, size_t limit,
                            Damaged damaged, std::vector<int64_t>* keys,
                            std::vector<char>* rows) = 0;

  // OK, or ResourceExhausted or Unavailable: only a reserve is left, for what
  // is on its way. May ask the disk.
  virtual absl::Status CheckRoom() = 0;

  // Bytes on disk, older versions of rows included, and how many are allowed.
  virtual uint64_t disk_bytes() const = 0;
  virtual uint64_t disk_limit_bytes() const = 0;
};

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_TABLES_COLD_STORE_H_
