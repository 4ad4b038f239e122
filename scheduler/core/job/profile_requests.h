#ifndef SYNCLINE_SCHEDULER_CORE_JOB_PROFILE_REQUESTS_H_
#define SYNCLINE_SCHEDULER_CORE_JOB_PROFILE_REQUESTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/job.pb.h"
#include "proto/scheduler.pb.h"

namespace syncline::scheduler {

// The profiles of one job that its workers were asked for and have not stored
// yet. Pure, thread-compatible.
class ProfileRequests {
 public:
  // Remembers that worker `rank` of the job was asked to record `steps` steps;
  // returns the request, with the artifact that the profile is stored by. Its
  // number is the smallest that no stored or requested profile has. Errors:
  // ResourceExhausted: the worker or the job has as many profiles as it may
  // (common/job/profile_limits.h).
  absl::StatusOr<ProfileSteps> Add(uint32_t rank, uint32_t steps,
                                   const JobStatus& job);
  // An artifact is stored. If it is a requested profile, this request and the
  // worker's earlier ones are over: a worker records in order.
  void OnStored(const std::string& artifact);
  // The worker's requests, in order: it is asked again when it has registered
  // again.
  std::vector<ProfileSteps> Of(uint32_t rank) const;

 private:
  struct Request {
    uint32_t rank = 0;
    ProfileSteps steps;
  };

  bool IsTaken(absl::string_view prefix, const JobStatus& job) const;

  std::vector<Request> requests_;  // in order
};

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_CORE_JOB_PROFILE_REQUESTS_H_
