#include "worker/artifact_transfer.h"

#include "common/rpc/scheduler_session.h"

namespace syncline {
namespace {

class SchedulerTransfer : public ArtifactTransfer {
 public:
  SchedulerTransfer(const std::string& address, uint64_t incarnation)
      : address_(address), incarnation_(incarnation) {}

  absl::Status Fetch(const std::string& job_id, const std::string& name,
                     const std::string& to_file, absl::Time deadline) override {
    return FetchArtifact(address_, job_id, name, to_file, deadline);
  }
  absl::Status Upload(const std::string& job_id, const std::string& name,
                      const std::string& from_file,
                      absl::Time deadline) override {
    return UploadArtifact(address_, job_id, incarnation_, name, from_file,
                          deadline);
  }

 private:
  const std::string address_;
  const uint64_t incarnation_;
};

}  // namespace

std::unique_ptr<ArtifactTransfer> SchedulerArtifacts(
    const std::string& scheduler_address, uint64_t incarnation) {
  return std::make_unique<SchedulerTransfer>(scheduler_address, incarnation);
}

}  // namespace syncline
