#ifndef SYNCLINE_SCHEDULER_CORE_JOB_JOB_MEMBERS_H_
#define SYNCLINE_SCHEDULER_CORE_JOB_JOB_MEMBERS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/job.pb.h"
#include "proto/scheduler.pb.h"
#include "scheduler/core/membership.h"

namespace syncline::scheduler {

// A member of the cluster that takes part in a job, and how far it is.
struct JobMember {
  enum class Role { kWorker, kEvaluator, kPs };
  enum class Stage { kPreparing, kPrepared, kGone };

  SessionId session = 0;
  Participant participant;
  Role role = Role::kWorker;
  Stage stage = Stage::kPreparing;
  bool done = false;    // with its part; results are stored
  bool failed = false;  // JobDone with another code than 0
  bool lost = false;    // done, because others go on without
  // It came back without the running job: it must say by then that it is done.
  absl::Time says_done_by = absl::InfiniteFuture();
  std::vector<std::string> problems = {};  // of preparing
  std::string activity = {};               // its last report; empty: none

  const Member& member() const { return participant.member(); }
  uint32_t rank() const { return participant.rank(); }
  bool IsChief() const { return role == Role::kWorker && rank() == 0; }
};

// The members of one job: the workers by rank, the evaluator if there is one,
// the ps by rank. Pure, thread-compatible.
class JobMembers {
 public:
  // REQUIRES: members come in the order above.
  void Add(SessionId session, JobMember::Role role, Participant participant);

  // Null if the session is of no member, or of one that has gone.
  JobMember* Find(SessionId session);
  const std::vector<JobMember>& all() const { return members_; }
  bool AllAre(JobMember::Stage stage) const;
  // True if all workers are done; if the evaluator is done, too.
  bool WorkersAreDone() const;
  bool WorkIsDone() const;
  // True if there are workers beside the chief, and all of them are done.
  bool OthersAreDone() const;
  // True if this member evaluates: the evaluator, or else the chief.
  bool Evaluates(const JobMember& member) const;

  // Of members that have not gone.
  std::vector<SessionId> Sessions() const;
  // Of the worker with this rank; `job_id` is for messages. Errors:
  // InvalidArgument: there is none, or it is the evaluator's;
  // FailedPrecondition: it has done all its steps.
  absl::StatusOr<SessionId> WorkerSession(uint32_t rank,
                                          const std::string& job_id) const;

  // Problems with preparing, of all members, as they said them.
  std::vector<std::string> Problems() const;
  // The same with their names, a line each.
  std::string ProblemsText() const;
  // Members that have not said that they are prepared.
  std::string UnpreparedText() const;
  // Members that a job in this state waits for: while it prepares, those that
  // have not answered; then those that report an activity, and the evaluator
  // if the workers are done and it is not. Empty: none.
  std::string WaitingText(JobState state) const;

 private:
  bool IsWaitedFor(const JobMember& member, JobState state) const;

  std::vector<JobMember> members_;
};

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_CORE_JOB_JOB_MEMBERS_H_
