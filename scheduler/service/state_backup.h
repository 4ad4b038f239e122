#ifndef SYNCLINE_SCHEDULER_SERVICE_STATE_BACKUP_H_
#define SYNCLINE_SCHEDULER_SERVICE_STATE_BACKUP_H_

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/job.pb.h"
#include "proto/scheduler.pb.h"
#include "scheduler/service/artifact_store.h"
#include "scheduler/service/state_store.h"

namespace syncline::scheduler {

// One moment of the scheduler's state as an archive of tar, which a new state
// folder can be unpacked from:
//
//   db/...              the database
//   jobs/<id>/<name>    the files of jobs that the records name
//   MANIFEST            last; a line for each file before it, in order: CRC-32C
//                       in eight hexadecimal digits, bytes, name
//
// The moment is kept in DIRECTORY/.backup-part-<pid>-<n>, as links to files
// that are not changed any more; it takes no room but for the end of the
// database's log. Thread-compatible; blocks on the disk.
class StateBackup {
 public:
  // Links the files of `jobs`, which are in the state about now: most of the
  // work, so that little is left for TakeMoment. May take seconds; not for the
  // thread that writes the state. Errors: those of the file system.
  static absl::StatusOr<std::unique_ptr<StateBackup>> Begin(
      const ArtifactStore& artifacts, absl::Span<const JobStatus> jobs);
  // `jobs`: all that are in the state now. Called once, by the thread that
  // writes the state. Copies the database and links the files that Begin did
  // not, or not as the records have them now; files that Begin linked and that
  // no record names any more are not in the archive. A file that a record names
  // and that is not there is left out. Errors: those of the file system, of a
  // copy of the database.
  absl::Status TakeMoment(StateStore* state, const ArtifactStore& artifacts,
                          absl::Span<const JobStatus> jobs);
  // Removes what killed schedulers have left of it: folders with such a name.
  static void RemoveLeftovers(const std::string& directory);
  ~StateBackup();  // removes the links

  // The next chunk; the one with `last` set ends the archive. Errors: those of
  // the file system.
  absl::Status Next(FileChunk* chunk);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  explicit StateBackup(std::string folder) : folder_(std::move(folder)) {}
  // False: there is no such file. Replaces an older link.
  absl::StatusOr<bool> Link(const ArtifactStore& artifacts,
                            const std::string& job_id,
                            const Artifact& artifact);
  absl::Status ListDatabase();
  absl::Status Open(const std::string& name);
  absl::Status ReadMore();
  void EndFile();
  // Appends to buffer_.
  absl::Status Produce();

  const std::string folder_;
  // The files of jobs that folder_ has, by name, as their records had them.
  absl::flat_hash_map<std::string, Artifact> linked_;
  std::vector<std::string> names_;  // below folder_, in order; of the moment
  size_t next_ = 0;
  std::unique_ptr<std::FILE, Close> file_;  // that is being read
  std::string name_;                        // its
  uint64_t bytes_ = 0;                      // its
  uint64_t left_ = 0;
  uint32_t file_crc32c_ = 0;
  std::string manifest_;
  bool manifest_done_ = false;
  bool ended_ = false;
  std::string buffer_;  // produced and not sent
  uint64_t offset_ = 0;
  uint32_t crc32c_ = 0;
};

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_SERVICE_STATE_BACKUP_H_
