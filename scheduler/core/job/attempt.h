#ifndef SYNCLINE_SCHEDULER_CORE_JOB_ATTEMPT_H_
#define SYNCLINE_SCHEDULER_CORE_JOB_ATTEMPT_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/job/job_pass.h"
#include "proto/job.pb.h"
#include "scheduler/core/data_comparison.h"
#include "scheduler/core/job/job_health.h"
#include "scheduler/core/job/job_members.h"
#include "scheduler/core/job/job_progress.h"
#include "scheduler/core/job/profile_requests.h"
#include "scheduler/core/job/ps_reports.h"

namespace syncline::scheduler {

// What a job knows of the members that it was given to last, and of their work:
// all that ends when they leave and the job is given to others. Evaluations,
// artifacts and transitions stay with the job. A plain value of Job's.
struct Attempt {
  Attempt(const JobSpec& spec, absl::Duration grace) : health(spec, grace) {}

  JobPass pass;
  JobMembers members;
  JobHealth health;
  // The first clock that is trained. As the chief has said: the rest.
  int64_t start_clock = 0;
  int64_t clocks_per_epoch = 0;
  int64_t clocks_total = 0;
  uint64_t train_samples = 0;
  DataComparison data;  // while it is prepared
  std::optional<JobProgressTracker> progress;
  PsReports ps_reports;
  ProfileRequests profiles;
  // A member has a problem with preparing; the other members may answer until
  // then.
  absl::Time refused_by = absl::InfiniteFuture();
  absl::Time started = absl::InfiniteFuture();
  absl::Time running_since = absl::InfiniteFuture();
  // All work is done; the members are told to stop.
  bool finishing = false;
  // It has failed, and there will be another one when its members have gone.
  bool abandoned = false;
};

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_CORE_JOB_ATTEMPT_H_
