#ifndef SYNCLINE_SCHEDULER_CORE_JOB_RESTART_POLICY_H_
#define SYNCLINE_SCHEDULER_CORE_JOB_RESTART_POLICY_H_

#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/job.pb.h"

namespace syncline::scheduler {

// Whether a job whose attempt has failed is given to members again, and when:
// JobSpec.restart. Pure. All that decides is in the job's record, which is
// durable, so a scheduler that starts anew decides as the one before it.

// A transition to QUEUED that no failure has caused (kPlannedMove of
// common/job/stop_reasons.h) is no restart: the job left a member because
// people wanted that. Nor is one because of a damaged checkpoint (DamageText).

// The reason of such a transition.
std::string DamageText(absl::string_view path, absl::string_view problems);

struct RestartDecision {
  bool restarts = false;
  // Where not: another run by hand would fail in the same way, too.
  bool repeated = false;
  // For people, to follow the reason of the failure: which restart of how many
  // it is, or why there is none. Empty: the job has asked for none.
  std::string text = {};
};

// `job` has failed for `reason`, with `exit_code`. It is given to members again
// if it asks for that, if the failure is worth a retry, if it is not the one
// that ended the attempt before, at the same clock, and if the window has room
// for a restart.
RestartDecision DecideRestart(const JobStatus& job, absl::string_view reason,
                              int exit_code, absl::Time now);

// When a job that waits for its next attempt may be given to members. The past
// for a job that has had none.
absl::Time RestartTime(const JobStatus& job);

// How long it waits for that after the loss: the job's backoff, doubled with
// each restart in the window before the last one, up to 5 minutes.
absl::Duration RestartBackoff(const JobStatus& job);

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_CORE_JOB_RESTART_POLICY_H_
