#ifndef SYNCLINE_WORKER_ARTIFACT_TRANSFER_H_
#define SYNCLINE_WORKER_ARTIFACT_TRANSFER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace syncline {

// How the files of a job come to a worker and results leave it. Blocking, until
// `deadline`. Thread-safe.
class ArtifactTransfer {
 public:
  virtual ~ArtifactTransfer() = default;
  virtual absl::Status Fetch(const std::string& job_id, const std::string& name,
                             const std::string& to_file,
                             absl::Time deadline) = 0;
  virtual absl::Status Upload(const std::string& job_id,
                              const std::string& name,
                              const std::string& from_file,
                              absl::Time deadline) = 0;
};

// From and to a scheduler, as the process `incarnation`.
std::unique_ptr<ArtifactTransfer> SchedulerArtifacts(
    const std::string& scheduler_address, uint64_t incarnation);

}  // namespace syncline

#endif  // SYNCLINE_WORKER_ARTIFACT_TRANSFER_H_
