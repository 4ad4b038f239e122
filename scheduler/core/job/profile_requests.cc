#include "scheduler/core/job/profile_requests.h"

#include <algorithm>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/job/profile_limits.h"

namespace syncline::scheduler {

bool ProfileRequests::IsTaken(absl::string_view prefix,
                              const JobStatus& job) const {
  return absl::c_any_of(job.artifacts(),
                        [&](const Artifact& artifact) {
                          return absl::StartsWith(artifact.name(), prefix);
                        }) ||
         absl::c_any_of(requests_, [&](const Request& request) {
           return absl::StartsWith(request.steps.artifact(), prefix);
         });
}

absl::StatusOr<ProfileSteps> ProfileRequests::Add(uint32_t rank, uint32_t steps,
                                                  const JobStatus& job) {
  const auto waiting = absl::c_count_if(
      requests_, [&](const Request& request) { return request.rank == rank; });
  if (static_cast<size_t>(waiting) == kProfilesPerWorkerMax) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "worker ", rank, " of job ", job.job_id(), " has ", waiting,
        " profiles to record already; ask again when it has "
        "stored one of them"));
  }
  for (int number = 1; number <= kProfilesPerJobMax; ++number) {
    const std::string prefix = absl::StrCat("profiles/", number, "-");
    if (IsTaken(prefix, job)) continue;
    ProfileSteps request;
    request.set_job_id(job.job_id());
    request.set_steps(steps);
    request.set_artifact(absl::StrCat(prefix, "rank-", rank, ".pb"));
    requests_.push_back({rank, request});
    return request;
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("job ", job.job_id(), " has ", kProfilesPerJobMax,
                   " profiles already, and no more are kept of one job"));
}

void ProfileRequests::OnStored(const std::string& artifact) {
  const auto stored = absl::c_find_if(requests_, [&](const Request& request) {
    return request.steps.artifact() == artifact;
  });
  if (stored == requests_.end()) return;
  const auto last = stored + 1;
  const auto kept = std::remove_if(
      requests_.begin(), last,
      [rank = stored->rank](const Request& r) { return r.rank == rank; });
  requests_.erase(kept, last);
}

std::vector<ProfileSteps> ProfileRequests::Of(uint32_t rank) const {
  std::vector<ProfileSteps> steps;
  for (const Request& request : requests_) {
    if (request.rank == rank) steps.push_back(request.steps);
  }
  return steps;
}

}  // namespace syncline::scheduler
