#ifndef SYNCLINE_SCHEDULER_CORE_JOB_ATTEMPT_H_
#define SYNCLINE_SCHEDULER_CORE_JOB_ATTEMPT_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/job/evaluate_validator.h"
#include "common/job/job_pass.h"
#include "proto/job.pb.h"
#include "proto/scheduler.pb.h"
#include "scheduler/core/data_comparison.h"
#include "scheduler/core/job/checkpoint_evaluations.h"
#include "scheduler/core/job/job_checkpoints.h"
#include "scheduler/core/job/job_health.h"
#include "scheduler/core/job/job_members.h"
#include "scheduler/core/job/job_progress.h"
#include "scheduler/core/job/lost_leases.h"
#include "scheduler/core/job/profile_requests.h"
#include "scheduler/core/job/ps_reports.h"
#include "scheduler/core/job/regime_policy.h"

namespace syncline::scheduler {

// The members that a job was given to last, and all that the job knows of their
// work: it ends when they leave and the job is given to others. Evaluations,
// artifacts and transitions stay with the job. A plain value of Job's.
struct Attempt {
  Attempt(const JobSpec& spec, absl::Duration grace) : health(spec, grace) {
    if (EvaluatesCheckpoints(spec)) evaluations.emplace();
  }

  JobPass pass;
  JobMembers members;
  JobHealth health;
  StartPoint start;
  // As the chief has said.
  int64_t clocks_per_epoch = 0;
  int64_t clocks_total = 0;
  uint64_t train_samples = 0;
  std::vector<DataFingerprint::Source> sources;  // without their files
  DataComparison data;                           // while it is prepared
  std::optional<JobProgressTracker> progress;
  // The job had come to this clock, as the chief has said of a checkpoint or a
  // change of the regime; reports of the workers' clocks may come later.
  int64_t reached_clock = 0;
  PsReports ps_reports;
  ProfileRequests profiles;
  // The change that the chief was asked for, until it is made or has failed.
  std::optional<ChangeRegime> regime_wanted;
  std::optional<RegimePolicy> regime_policy;  // from Start or TakeUp on
  // Only where the job's checkpoints are evaluated.
  std::optional<CheckpointEvaluations> evaluations;
  // Why the last checkpoint was not made; empty: it was, or there was none.
  std::string checkpoint_trouble;
  // The job is to leave a member: the number of the checkpoint that was asked
  // for, why, whether that is its number of workers alone, and when another
  // checkpoint may be asked for.
  struct Move {
    uint64_t request = 0;
    std::string why;
    bool for_scale = false;
    absl::Time next = absl::InfinitePast();
  };
  std::optional<Move> move;
  // Why the next attempt is to have another number of workers, as people have
  // asked during this one; empty: they have not.
  std::string scaled;
  // JobPrepared.found, of each member that has found some.
  std::vector<std::vector<FoundCheckpoint>> found;
  // A member has a problem with preparing; the other members may answer until
  // then.
  absl::Time refused_by = absl::InfiniteFuture();
  absl::Time started = absl::InfiniteFuture();
  absl::Time running_since = absl::InfiniteFuture();
  // It goes on since then without a worker that it has lost.
  absl::Time lost_at = absl::InfinitePast();
  std::map<uint32_t, LostLeases> lost_leases;  // leased data: by rank
  // The job ends early: why, as the chief has said, and the workers that are
  // to be stopped for it.
  std::string early_end;
  std::vector<SessionId> leavers;
  // All work is done; the members are told to stop.
  bool finishing = false;
  // It has failed, and there will be another one when its members have gone.
  bool abandoned = false;
};

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_CORE_JOB_ATTEMPT_H_
