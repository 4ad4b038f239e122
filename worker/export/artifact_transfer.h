#ifndef SYNCLINE_WORKER_EXPORT_ARTIFACT_TRANSFER_H_
#define SYNCLINE_WORKER_EXPORT_ARTIFACT_TRANSFER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/cancellation.h"
#include "common/job/job_pass.h"

namespace syncline::worker {

// How the files of a job come to a worker and results leave it. Blocking, until
// `deadline` or until `cancellation`, which may be null, is: then the error is
// Cancelled. Thread-safe.
class ArtifactTransfer {
 public:
  virtual ~ArtifactTransfer() = default;
  // `pass`: of the job's attempt that this worker takes part in, or that the
  // file is of.
  virtual absl::Status Fetch(const std::string& job_id, const JobPass& pass,
                             const std::string& name,
                             const std::string& to_file, absl::Time deadline,
                             Cancellation* cancellation) = 0;
  virtual absl::Status Upload(const std::string& job_id, const JobPass& pass,
                              const std::string& name,
                              const std::string& from_file, absl::Time deadline,
                              Cancellation* cancellation) = 0;
};

// From and to a scheduler, as the process `incarnation`. `session_secret` gives
// the secret of the stream that it has now; thread-safe.
std::unique_ptr<ArtifactTransfer> SchedulerArtifacts(
    const std::string& scheduler_address, uint64_t incarnation,
    std::function<std::string()> session_secret);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_EXPORT_ARTIFACT_TRANSFER_H_
