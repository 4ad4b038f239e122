#include "server/shard/job_registry.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/job/orphaned_job.h"
#include "common/update/reduction_root.h"

namespace syncline::ps {
namespace {

// A ps has few jobs at a time.
constexpr size_t kOrphanedMax = 64;

absl::Status Draining() {
  return absl::UnavailableError("this ps is draining");
}

}  // namespace

absl::Status JobRegistry::CheckNew(const std::string& job_id) const {
  MutexLock lock(&mu_);
  return CheckNewLocked(job_id);
}

absl::Status JobRegistry::CheckNewLocked(const std::string& job_id) const {
  if (draining_) return Draining();
  if (jobs_.count(job_id) == 0) return absl::OkStatus();
  return absl::AlreadyExistsError(
      absl::StrCat("job ", job_id, " is open already"));
}

absl::Status JobRegistry::Add(std::shared_ptr<const JobAccess> access,
                              Shards shards) {
  MutexLock lock(&mu_);
  SYNCLINE_RETURN_IF_ERROR(CheckNewLocked(access->job_id));
  orphaned_.erase(access->job_id);
  OpenJob& job = jobs_[access->job_id];
  job.access = std::move(access);
  for (auto& shard : shards) {
    const uint32_t number = shard->config.shard;
    job.shards[number] = std::move(shard);
  }
  return absl::OkStatus();
}

std::optional<JobRegistry::Shards> JobRegistry::Remove(
    const std::string& job_id, absl::string_view reason) {
  MutexLock lock(&mu_);
  const auto found = jobs_.find(job_id);
  if (found == jobs_.end()) return std::nullopt;
  Shards shards = ShardsOf(found->second);
  jobs_.erase(found);
  if (IsOfOrphanedJob(reason)) {
    if (orphaned_.size() >= kOrphanedMax) orphaned_.erase(orphaned_.begin());
    orphaned_[job_id] = std::string(reason);
  }
  return shards;
}

std::optional<JobRegistry::Shards> JobRegistry::Remove(
    const JobAccess& access) {
  MutexLock lock(&mu_);
  const auto found = jobs_.find(access.job_id);
  if (found == jobs_.end() || found->second.access.get() != &access) {
    return std::nullopt;
  }
  Shards shards = ShardsOf(found->second);
  jobs_.erase(found);
  return shards;
}

absl::StatusOr<JobRegistry::Shards> JobRegistry::BeginRouting(
    std::shared_ptr<const JobAccess> access) {
  MutexLock lock(&mu_);
  SYNCLINE_RETURN_IF_ERROR(JobOf(access->job_id).status());
  OpenJob& job = jobs_[access->job_id];
  SYNCLINE_RETURN_IF_ERROR(CheckPass(job.access->pass, job.access->label,
                                     access->pass.attempt,
                                     access->pass.secret));
  if (access->routing_version <= job.access->routing_version) {
    return absl::FailedPreconditionError(
        absl::StrCat(job.access->label, ": is at routing version ",
                     job.access->routing_version, ", and cannot go to version ",
                     access->routing_version));
  }
  Shards shards = ShardsOf(job);
  job = {.access = std::move(access), .opening = true, .shards = {}};
  return shards;
}

absl::Status JobRegistry::EndRouting(const JobAccess& access, Shards shards) {
  MutexLock lock(&mu_);
  SYNCLINE_RETURN_IF_ERROR(JobOf(access.job_id).status());
  OpenJob& job = jobs_[access.job_id];
  if (job.access.get() != &access) {
    return absl::FailedPreconditionError(absl::StrCat(
        access.label, ": closed while its shards of routing version ",
        access.routing_version, " were opened"));
  }
  job.opening = false;
  for (auto& shard : shards) {
    const uint32_t number = shard->config.shard;
    job.shards[number] = std::move(shard);
  }
  return absl::OkStatus();
}

absl::StatusOr<const JobRegistry::OpenJob*> JobRegistry::JobOf(
    const std::string& job_id) const {
  if (draining_) return Draining();
  const auto found = jobs_.find(job_id);
  if (found == jobs_.end()) {
    std::string problem = absl::StrCat("job ", job_id, kNotOpenOnPs);
    const auto orphaned = orphaned_.find(job_id);
    if (orphaned != orphaned_.end()) {
      absl::StrAppend(&problem, ": it was closed: ", orphaned->second);
    }
    return absl::FailedPreconditionError(problem);
  }
  return &found->second;
}

absl::Status JobRegistry::CheckOpened(const OpenJob& job) {
  if (!job.opening) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat(job.access->label, ": opens its shards of routing version ",
                   job.access->routing_version));
}

absl::StatusOr<std::shared_ptr<const JobEntry>> JobRegistry::ShardOf(
    const OpenJob& job, uint32_t shard) {
  SYNCLINE_RETURN_IF_ERROR(CheckOpened(job));
  const auto found = job.shards.find(shard);
  if (found == job.shards.end()) {
    return absl::FailedPreconditionError(
        absl::StrCat(job.access->label, ": shard ", shard, " is not here"));
  }
  if (found->second->shard == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        found->second->config.label, ": no block of the job is here"));
  }
  return found->second;
}

JobRegistry::Shards JobRegistry::ShardsOf(const OpenJob& job) {
  Shards shards;
  for (const auto& [number, shard] : job.shards) shards.push_back(shard);
  return shards;
}

absl::StatusOr<std::shared_ptr<const JobEntry>> JobRegistry::Find(
    const std::string& job_id, uint32_t shard) const {
  MutexLock lock(&mu_);
  SYNCLINE_ASSIGN_OR_RETURN(const OpenJob* const job, JobOf(job_id));
  return ShardOf(*job, shard);
}

template <typename Request>
absl::StatusOr<std::shared_ptr<const JobEntry>> JobRegistry::FindRoot(
    const Request& request) const {
  MutexLock lock(&mu_);
  SYNCLINE_ASSIGN_OR_RETURN(const OpenJob* const job, JobOf(request.job_id()));
  SYNCLINE_RETURN_IF_ERROR(CheckPass(job->access->pass, job->access->label,
                                     request.attempt(), request.job_secret()));
  SYNCLINE_RETURN_IF_ERROR(
      job->access->CheckRouting(request.routing_version()));
  return ShardOf(*job, kRootShard);
}

absl::StatusOr<std::shared_ptr<const JobEntry>> JobRegistry::Find(
    const FoldNormRequest& request) const {
  return FindRoot(request);
}

absl::StatusOr<std::shared_ptr<const JobEntry>> JobRegistry::Find(
    const FixClockRequest& request) const {
  return FindRoot(request);
}

absl::StatusOr<std::shared_ptr<const JobEntry>> JobRegistry::Find(
    const Caller& caller) const {
  MutexLock lock(&mu_);
  SYNCLINE_ASSIGN_OR_RETURN(const OpenJob* const job, JobOf(caller.job_id()));
  SYNCLINE_RETURN_IF_ERROR(job->access->CheckCaller(caller));
  SYNCLINE_RETURN_IF_ERROR(job->access->CheckRouting(caller.routing_version()));
  return ShardOf(*job, caller.shard());
}

absl::StatusOr<std::shared_ptr<const JobAccess>> JobRegistry::FindAccess(
    const Caller& caller) const {
  MutexLock lock(&mu_);
  SYNCLINE_ASSIGN_OR_RETURN(const OpenJob* const job, JobOf(caller.job_id()));
  SYNCLINE_RETURN_IF_ERROR(job->access->CheckCaller(caller));
  SYNCLINE_RETURN_IF_ERROR(CheckOpened(*job));
  return job->access;
}

JobRegistry::Shards JobRegistry::All() const {
  MutexLock lock(&mu_);
  Shards all;
  for (const auto& [id, job] : jobs_) {
    for (const auto& [number, shard] : job.shards) all.push_back(shard);
  }
  return all;
}

std::vector<std::string> JobRegistry::JobIds() const {
  MutexLock lock(&mu_);
  std::vector<std::string> ids;
  for (const auto& [id, job] : jobs_) ids.push_back(id);
  return ids;
}

absl::StatusOr<JobRegistry::Shards> JobRegistry::AllOf(
    const std::string& job_id) const {
  MutexLock lock(&mu_);
  SYNCLINE_ASSIGN_OR_RETURN(const OpenJob* const job, JobOf(job_id));
  return ShardsOf(*job);
}

bool JobRegistry::Has(const JobEntry& shard) const {
  MutexLock lock(&mu_);
  const auto job = jobs_.find(shard.config.job_id);
  if (job == jobs_.end()) return false;
  const auto found = job->second.shards.find(shard.config.shard);
  return found != job->second.shards.end() && found->second.get() == &shard;
}

void JobRegistry::StartDraining() {
  MutexLock lock(&mu_);
  draining_ = true;
}

}  // namespace syncline::ps
