#include "server/shard/job_registry.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace syncline::ps {
namespace {

absl::Status Draining() {
  return absl::UnavailableError("this ps is draining");
}

}  // namespace

absl::Status JobRegistry::CheckNew(const std::string& job_id) const {
  MutexLock lock(&mu_);
  return CheckNewLocked(job_id);
}

absl::Status JobRegistry::Add(std::shared_ptr<const JobEntry> job) {
  MutexLock lock(&mu_);
  const std::string job_id = job->config.job_id;
  SYNCLINE_RETURN_IF_ERROR(CheckNewLocked(job_id));
  jobs_.emplace(job_id, std::move(job));
  return absl::OkStatus();
}

absl::Status JobRegistry::CheckNewLocked(const std::string& job_id) const {
  if (draining_) return Draining();
  if (jobs_.count(job_id) == 0) return absl::OkStatus();
  return absl::AlreadyExistsError(
      absl::StrCat("job ", job_id, " is open already"));
}

std::shared_ptr<const JobEntry> JobRegistry::Remove(const std::string& job_id) {
  MutexLock lock(&mu_);
  const auto found = jobs_.find(job_id);
  if (found == jobs_.end()) return nullptr;
  std::shared_ptr<const JobEntry> job = std::move(found->second);
  jobs_.erase(found);
  return job;
}

absl::StatusOr<std::shared_ptr<const JobEntry>> JobRegistry::Find(
    const std::string& job_id) const {
  MutexLock lock(&mu_);
  if (draining_) return Draining();
  const auto found = jobs_.find(job_id);
  if (found == jobs_.end()) {
    return absl::FailedPreconditionError(
        absl::StrCat("job ", job_id, " is not open on this ps"));
  }
  if (found->second->shard == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        found->second->config.label, ": no block of the job is here"));
  }
  return found->second;
}

absl::StatusOr<std::shared_ptr<const JobEntry>> JobRegistry::Find(
    const FoldNormRequest& request) const {
  SYNCLINE_ASSIGN_OR_RETURN(std::shared_ptr<const JobEntry> job,
                            Find(request.job_id()));
  SYNCLINE_RETURN_IF_ERROR(CheckPass(job->config.pass, job->config.label,
                                     request.attempt(), request.job_secret()));
  return job;
}

absl::StatusOr<std::shared_ptr<const JobEntry>> JobRegistry::Find(
    const Caller& caller) const {
  SYNCLINE_ASSIGN_OR_RETURN(std::shared_ptr<const JobEntry> job,
                            Find(caller.job_id()));
  const JobConfig& config = job->config;
  SYNCLINE_RETURN_IF_ERROR(CheckPass(config.pass, config.label,
                                     caller.attempt(), caller.job_secret()));
  if (caller.routing_version() != config.routing_version) {
    return absl::AbortedError(absl::StrCat(
        config.label, ": routing version ", caller.routing_version(),
        ", the current one is ", config.routing_version));
  }
  SYNCLINE_RETURN_IF_ERROR(
      config.controller.CheckCaller(caller.rank(), caller.incarnation()));
  return job;
}

std::vector<std::shared_ptr<const JobEntry>> JobRegistry::All() const {
  MutexLock lock(&mu_);
  std::vector<std::shared_ptr<const JobEntry>> jobs;
  for (const auto& [id, job] : jobs_) jobs.push_back(job);
  return jobs;
}

bool JobRegistry::Has(const JobEntry& job) const {
  MutexLock lock(&mu_);
  const auto found = jobs_.find(job.config.job_id);
  return found != jobs_.end() && found->second.get() == &job;
}

void JobRegistry::StartDraining() {
  MutexLock lock(&mu_);
  draining_ = true;
}

}  // namespace syncline::ps
