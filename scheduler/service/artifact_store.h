#ifndef SYNCLINE_SCHEDULER_SERVICE_ARTIFACT_STORE_H_
#define SYNCLINE_SCHEDULER_SERVICE_ARTIFACT_STORE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/cluster/file_chunks.h"
#include "proto/job.pb.h"

namespace syncline::scheduler {

// The files of jobs: DIRECTORY/jobs/<job id>/<artifact name>. A file is there
// whole or not at all. Thread-safe; blocks on the disk.
class ArtifactStore {
 public:
  // Creates the directories and drops uploads that an earlier process left.
  static absl::StatusOr<std::unique_ptr<ArtifactStore>> Open(
      const std::string& directory);

  // "model.onnx", "logs/worker-1.log": one or two parts of [A-Za-z0-9._-], none
  // of which begins with a dot, at most 128 characters. Errors:
  // InvalidArgument.
  static absl::Status CheckName(const std::string& name);

  // OK if the disk has room for `bytes` more and its reserve, which is kept for
  // job records and logs. Errors: ResourceExhausted, with the numbers; NotFound
  // and others by errno: the directory is gone or cannot be asked.
  absl::Status CheckRoom(uint64_t bytes) const;
  // Of the disk that it is on. Errors: NotFound and others by errno.
  struct Disk {
    uint64_t bytes = 0;
    uint64_t free_bytes = 0;  // for this process
  };
  absl::StatusOr<Disk> DiskSpace() const;
  // Where an upload collects its chunks; `declared_bytes` as FileChunkWriter's.
  // Errors: as CheckRoom, of the bytes that are declared; ResourceExhausted:
  // more than bytes_max.
  absl::StatusOr<std::unique_ptr<FileChunkWriter>> BeginUpload(
      uint64_t bytes_max,
      std::optional<uint64_t> declared_bytes = std::nullopt);
  // Names a whole upload and makes it durable; replaces what has the name.
  absl::StatusOr<Artifact> Commit(FileChunkWriter* upload,
                                  const std::string& job_id,
                                  const std::string& name);
  // Errors: NotFound.
  absl::StatusOr<std::unique_ptr<FileChunkReader>> Read(
      const std::string& job_id, const std::string& name) const;
  // Absolute.
  std::string FolderOf(const std::string& job_id) const;
  std::string PathOf(const std::string& job_id, const std::string& name) const;

  // That it was opened with.
  const std::string& directory() const { return directory_; }

  absl::Status DeleteJob(const std::string& job_id);
  // Ids of the jobs that have a folder, in order.
  absl::StatusOr<std::vector<std::string>> ListJobs() const;

 private:
  explicit ArtifactStore(const std::string& directory)
      : directory_(directory),
        jobs_(directory + "/jobs"),
        incoming_(directory + "/incoming") {}

  const std::string directory_;
  const std::string jobs_;
  const std::string incoming_;
  std::atomic<uint64_t> next_upload_{1};
};

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_SERVICE_ARTIFACT_STORE_H_
