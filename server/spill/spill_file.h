#ifndef SYNCLINE_SERVER_SPILL_SPILL_FILE_H_
#define SYNCLINE_SERVER_SPILL_SPILL_FILE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/mutex.h"

namespace syncline::ps {

// A file in chunks of one size, which are taken, written, read and given back.
// The file grows as needed and never shrinks. The disk has reserved the room of
// a chunk before the chunk is handed out, so a write to it finds no full disk.
// The file keeps a reserve, so that a full disk is noticed before a write
// fails. Nothing is synced: the file is useless after the end of the process.
// Thread-safe; the owner of a chunk makes sure that it is not read while it is
// written.
//
// Errors, the same for every call; each message names the folder:
//   ResourceExhausted  the disk, or what is allowed of it, is full
//   PermissionDenied   the disk may not be written
//   Unavailable        the disk does not answer as it should
class SpillFile {
 public:
  // Makes `folder`/rows; chunk_bytes: a multiple of 4096. The reserve is the
  // bytes that the file grows by at a time, or `reserve_bytes` if that is more.
  static absl::StatusOr<std::unique_ptr<SpillFile>> Create(
      const std::string& folder, size_t chunk_bytes, uint64_t bytes_max,
      uint64_t reserve_bytes = 0);
  ~SpillFile();
  SpillFile(const SpillFile&) = delete;
  SpillFile& operator=(const SpillFile&) = delete;

  const std::string& folder() const { return folder_; }
  size_t chunk_bytes() const { return chunk_bytes_; }
  uint64_t bytes_max() const { return bytes_max_; }
  // In chunks that are taken.
  uint64_t bytes_taken() const {
    return taken_.load(std::memory_order_relaxed) * chunk_bytes_;
  }

  absl::StatusOr<uint32_t> Take() ABSL_LOCKS_EXCLUDED(mu_);
  // OK, or why only the reserve is left; asks the disk again if it was so.
  absl::Status CheckRoom() ABSL_LOCKS_EXCLUDED(mu_);
  void Give(const std::vector<uint32_t>& chunks) ABSL_LOCKS_EXCLUDED(mu_);

  absl::Status Write(uint32_t chunk, size_t offset, absl::string_view data);
  absl::Status Read(uint32_t chunk, size_t offset, size_t bytes,
                    char* out) const;
  // Only what the system has in memory: else *there is false, and it is asked
  // to fetch it. For many reads at a time from a disk that is slow.
  absl::Status TryRead(uint32_t chunk, size_t offset, size_t bytes, char* out,
                       bool* there) const;

  absl::Status Error(int error_number, absl::string_view verb) const;

 private:
  SpillFile(std::string folder, int file, size_t chunk_bytes,
            uint64_t bytes_max, uint64_t reserve_bytes)
      : folder_(std::move(folder)),
        file_(file),
        chunk_bytes_(chunk_bytes),
        bytes_max_(bytes_max),
        reserve_bytes_(reserve_bytes) {}
  // Grows the file until there is more than the reserve, if the disk has room.
  absl::Status GrowIfLow() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Grow(uint32_t chunks) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  int64_t At(uint32_t chunk, size_t offset) const {
    return static_cast<int64_t>(chunk * uint64_t{chunk_bytes_} + offset);
  }

  const std::string folder_;
  const int file_;  // may be none: then nothing else is called
  const size_t chunk_bytes_;
  const uint64_t bytes_max_;
  const uint64_t reserve_bytes_;
  std::atomic<uint64_t> taken_{0};
  std::atomic<bool> low_{false};
  Mutex mu_;
  uint32_t chunks_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<uint32_t> free_ ABSL_GUARDED_BY(mu_);
};

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_SPILL_SPILL_FILE_H_
