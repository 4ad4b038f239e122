#ifndef SYNCLINE_SERVER_SPILL_ROW_SPILL_H_
#define SYNCLINE_SERVER_SPILL_ROW_SPILL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/system/locked_folder.h"
#include "server/tables/cold_store.h"

namespace syncline::ps {

// The folder of one daemon below --spill-dir. Spilled rows are useless without
// the index in the memory of their process. So files of earlier processes are
// removed when this is opened, and all files when it is closed. Thread-safe.
class SpillDirectory {
 public:
  // Removes what killed daemons have left in `root`, too. Errors, naming the
  // path: those of the file system when it cannot be made or written.
  static absl::StatusOr<std::unique_ptr<SpillDirectory>> Open(
      const std::string& root);

  const std::string& path() const { return folder_->path(); }
  // A path for a table's rows that no other has; nothing is made. In this
  // folder itself: one for each job would be left behind by its tables.
  std::string PathFor(absl::string_view job, uint32_t shard,
                      uint32_t table) const;

 private:
  explicit SpillDirectory(std::unique_ptr<LockedFolder> folder)
      : folder_(std::move(folder)) {}

  const std::unique_ptr<LockedFolder> folder_;
};

// The cold rows of one table in one file, in segments (spill_segment.h).
// Nothing is synced or logged: a row that is here has left memory only because
// there was no room.
class RowSpill {
 public:
  struct Options {
    std::string folder;         // made by Open, removed with the store
    size_t row_bytes = 0;       // TableShard::SpilledRowBytes
    uint32_t partitions = 1;    // ColdKey::partition is below
    int lanes = 1;              // that may call at the same time
    uint64_t memory_bytes = 0;  // to find rows; >= kMemoryMin
    uint64_t disk_bytes = 0;    // >= kDiskMin
  };
  static constexpr uint64_t kMemoryMin = 64 << 10;
  static constexpr uint64_t kDiskMin = 1 << 20;

  // Bytes of memory that suffice for a store of so much disk.
  static uint64_t MemoryFor(uint64_t table_memory_bytes, uint64_t disk_bytes);

  // Errors, naming the folder: InvalidArgument: a limit below its least;
  // Unavailable, ResourceExhausted, PermissionDenied: the disk refuses.
  static absl::StatusOr<std::unique_ptr<ColdStore>> Open(
      const Options& options);
};

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_SPILL_ROW_SPILL_H_
