#ifndef SYNCLINE_COMMON_CHECKPOINT_STATE_FILE_H_
#define SYNCLINE_COMMON_CHECKPOINT_STATE_FILE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/state/shard_state_stream.h"
#include "common/system/disk_thread.h"
#include "common/system/file_descriptor.h"

namespace syncline {

// How long whoever ends its part of a job waits for a checkpoint's disk: less
// than a scheduler waits for a member that is to release a job
// (release_timeout of its cluster core).
inline constexpr absl::Duration kCheckpointDiskWaitMax = absl::Seconds(4);

// A shard's state on its way into a file of its own: written from its beginning
// to its end, in pieces of some MiB, and synced. The disk's thread writes a
// piece while the next one is appended; so a disk that hangs holds up whoever
// appends for a bounded time. The file is removed unless it was finished.
// Thread-compatible.
//
// Errors: ResourceExhausted: the disk is full, or a quota; Unavailable: any
// other error of the disk, or it hangs; they name the path. The reason of
// DiskThread::LeaveAt.
class StateFileSink final : public ShardStateSink {
 public:
  // `go_on` is asked before each piece, and while the disk takes one; its error
  // ends the file. May be null; on the caller's thread. `disk` outlives the
  // sink.
  static absl::StatusOr<std::unique_ptr<StateFileSink>> Create(
      const std::string& path, std::function<absl::Status()> go_on,
      DiskThread* disk);
  // Waits until the disk has taken or refused its piece, unless it is left.
  ~StateFileSink() override;
  StateFileSink(const StateFileSink&) = delete;
  StateFileSink& operator=(const StateFileSink&) = delete;

  // From now on a disk that takes a piece for longer hangs, which is an error.
  // For ever at first.
  void SetPieceWaitMax(absl::Duration max) { piece_wait_max_ = max; }

  absl::Status Append(absl::string_view head, absl::string_view bulk) override;
  // Writes what is left and syncs it. Nothing can be appended afterwards.
  absl::Status Finish();

  // Of what was appended.
  uint64_t bytes() const { return bytes_; }
  uint32_t crc32c() const { return crc32c_; }

 private:
  // The file, of the disk's calls that use it and the sink's.
  struct File;

  StateFileSink(std::shared_ptr<File> file, std::function<absl::Status()> go_on,
                DiskThread* disk);
  // Gives buffer_ to the disk.
  absl::Status Flush();
  // Until the disk has taken the piece that it was given, if it was given one.
  // Errors: the disk's.
  absl::Status AwaitDisk();

  const std::function<absl::Status()> go_on_;
  DiskThread* const disk_;
  std::shared_ptr<File> file_;
  absl::Duration piece_wait_max_ = absl::InfiniteDuration();
  std::string buffer_;
  // The disk's until it has taken it; then memory for the next one.
  std::shared_ptr<std::string> piece_;
  uint64_t bytes_ = 0;
  uint32_t crc32c_ = 0;
};

// A shard's state in a file, of which the size and the checksum are known. What
// is passed over is not read. Thread-compatible.
class StateFileSource final : public ShardStateSource {
 public:
  // Bytes between two questions to `go_on`.
  static constexpr size_t kReadBytes = 4 << 20;

  // `go_on` is asked before the first read of the disk, and again every
  // kReadBytes of the file, read or passed over; its error ends the reading.
  // May be null. Errors: NotFound and others by errno; DataLoss: it has another
  // size.
  static absl::StatusOr<std::unique_ptr<StateFileSource>> Open(
      const std::string& path, uint64_t bytes, uint32_t crc32c,
      std::function<absl::Status()> go_on = nullptr);
  // The same, but that a disk which makes one call for `wait_max` hangs, which
  // is an error, Unavailable; calls are then left behind. While the disk makes
  // one, `go_on` is asked ten times a second. Bytes are copied once more.
  static absl::StatusOr<std::unique_ptr<StateFileSource>> OpenWatched(
      const std::string& path, uint64_t bytes, uint32_t crc32c,
      std::function<absl::Status()> go_on, absl::Duration wait_max);
  // One of which nobody knows them: its records are checked as ever, and that
  // nothing follows the last one. `wait_max`: as OpenWatched; none: as Open.
  static absl::StatusOr<std::unique_ptr<StateFileSource>> OpenUnlisted(
      const std::string& path, std::function<absl::Status()> go_on,
      std::optional<absl::Duration> wait_max = std::nullopt);

  // From now on adds to *read the bytes that the disk gives for this file, and
  // for the older ones that it opens; it outlives them. Null: does not.
  void CountIn(uint64_t* read) { read_ = read; }

  // Errors: Unavailable: the disk; those of `go_on`.
  absl::StatusOr<size_t> Read(size_t bytes, char* out) override;
  absl::StatusOr<size_t> Skip(size_t bytes) override;
  // Errors: DataLoss: it is not the checksum that is known.
  absl::Status CheckWhole(uint32_t crc32c) const override;
  // A file beside this one: OlderStateFile. Errors: those of Open.
  absl::StatusOr<std::unique_ptr<ShardStateSource>> OpenOlder(
      uint64_t cut_id, uint64_t bytes, uint32_t crc32c) const override;
  std::string name() const override { return path_; }

 private:
  // The file as it was opened.
  struct Opened;
  // `bytes`: those that it must have; none: any number.
  static absl::StatusOr<Opened> OpenFile(const std::string& path,
                                         std::optional<uint64_t> bytes);
  // `wait_max`: as OpenWatched; none: whoever reads waits for the disk.
  static absl::StatusOr<std::unique_ptr<StateFileSource>> Make(
      const std::string& path, std::optional<uint64_t> bytes,
      std::optional<uint32_t> crc32c, std::function<absl::Status()> go_on,
      std::optional<absl::Duration> wait_max);
  StateFileSource(const std::string& path, Opened file,
                  std::optional<uint32_t> crc32c,
                  std::function<absl::Status()> go_on);
  // By the disk's thread.
  absl::StatusOr<size_t> ReadWatched(size_t bytes, char* out);
  // Reads at at_ what the disk gives, fewer than `bytes` if it likes; 0: the
  // end.
  absl::StatusOr<size_t> ReadSome(size_t bytes, char* out);

  const std::string path_;
  const std::shared_ptr<const FileDescriptor> file_;  // calls' left behind, too
  const uint64_t bytes_;
  const std::optional<uint32_t> crc32c_;  // none: not known
  const std::function<absl::Status()> go_on_;
  uint64_t at_ = 0;      // in the file, behind buffer_
  uint64_t ask_at_ = 0;  // in the file
  std::string buffer_;   // for small reads
  size_t used_ = 0;      // of it
  uint64_t* read_ = nullptr;
  // Where the disk is watched.
  absl::Duration wait_max_;
  std::shared_ptr<std::string> piece_;
  std::unique_ptr<DiskThread> disk_;
};

// Waits until the call that `disk` was given last is made. `go_on` is asked ten
// times a second; it may be null. Errors: the call's; those of `go_on`;
// Unavailable: `wait_max` is over, with what() as the reason. `calls`: what the
// call counts of those that it makes; `wait_max` begins anew with each. Null:
// it makes one.
absl::Status AwaitDisk(DiskThread* disk,
                       const std::function<absl::Status()>& go_on,
                       absl::Duration wait_max,
                       absl::FunctionRef<std::string()> what,
                       const DiskCalls* calls = nullptr);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_CHECKPOINT_STATE_FILE_H_
