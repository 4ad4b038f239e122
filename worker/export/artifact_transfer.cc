#include "worker/export/artifact_transfer.h"

#include <utility>

#include "common/cluster/scheduler_session.h"

namespace syncline::worker {
namespace {

class SchedulerTransfer : public ArtifactTransfer {
 public:
  SchedulerTransfer(const std::string& address, uint64_t incarnation,
                    std::function<std::string()> session_secret)
      : address_(address),
        incarnation_(incarnation),
        session_secret_(std::move(session_secret)) {}

  absl::Status Fetch(const std::string& job_id, const JobPass& pass,
                     const std::string& name, const std::string& to_file,
                     absl::Time deadline, Cancellation* cancellation) override {
    DownloadRequest download;
    download.set_job_id(job_id);
    download.set_name(name);
    download.set_attempt(pass.attempt);
    download.set_job_secret(pass.secret);
    return FetchArtifact(address_, download, to_file, deadline, cancellation);
  }
  absl::Status Upload(const std::string& job_id, const JobPass& pass,
                      const std::string& name, const std::string& from_file,
                      absl::Time deadline,
                      Cancellation* cancellation) override {
    UploadBegin upload;
    upload.set_job_id(job_id);
    upload.set_name(name);
    upload.set_incarnation(incarnation_);
    upload.set_attempt(pass.attempt);
    upload.set_job_secret(pass.secret);
    upload.set_session_secret(session_secret_());
    return UploadArtifact(address_, upload, from_file, deadline, cancellation);
  }

 private:
  const std::string address_;
  const uint64_t incarnation_;
  const std::function<std::string()> session_secret_;
};

}  // namespace

std::unique_ptr<ArtifactTransfer> SchedulerArtifacts(
    const std::string& scheduler_address, uint64_t incarnation,
    std::function<std::string()> session_secret) {
  return std::make_unique<SchedulerTransfer>(scheduler_address, incarnation,
                                             std::move(session_secret));
}

}  // namespace syncline::worker
