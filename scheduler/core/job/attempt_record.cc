#include "scheduler/core/job/attempt_record.h"

#include <utility>

#include "scheduler/core/job/job_commands.h"

namespace syncline::scheduler {

AttemptRecord RecordOf(const JobStatus& job, const Attempt& attempt) {
  SchedulerMessage prepare =
      PrepareCommand(job, attempt.members, /*parameters=*/{}, /*tables=*/{},
                     attempt.pass, attempt.start);
  AttemptRecord record;
  JobAssignment* const assignment = record.mutable_assignment();
  *assignment = std::move(*prepare.mutable_prepare()->mutable_assignment());
  assignment->clear_spec();
  record.set_clocks_per_epoch(attempt.clocks_per_epoch);
  record.set_clocks_total(attempt.clocks_total);
  record.set_train_samples(attempt.train_samples);
  return record;
}

void RestoreAttempt(const AttemptRecord& record,
                    absl::FunctionRef<SessionId()> next_session,
                    Attempt* attempt) {
  const JobAssignment& assignment = record.assignment();
  attempt->pass = {.attempt = assignment.attempt(),
                   .secret = assignment.job_secret()};
  attempt->start = {.clock = assignment.start_clock()};
  if (assignment.has_start_from())
    attempt->start.from = assignment.start_from();
  using Role = JobMember::Role;
  for (const Participant& worker : assignment.workers()) {
    attempt->members.Add(next_session(), Role::kWorker, worker);
  }
  if (assignment.has_evaluator()) {
    attempt->members.Add(next_session(), Role::kEvaluator,
                         assignment.evaluator());
  }
  for (const Participant& ps : assignment.ps()) {
    attempt->members.Add(next_session(), Role::kPs, ps);
  }
  attempt->clocks_per_epoch = record.clocks_per_epoch();
  attempt->clocks_total = record.clocks_total();
  attempt->train_samples = record.train_samples();
}

}  // namespace syncline::scheduler
