#ifndef SYNCLINE_SCHEDULER_CORE_JOB_JOB_H_
#define SYNCLINE_SCHEDULER_CORE_JOB_JOB_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "proto/job.pb.h"
#include "proto/scheduler.pb.h"
#include "scheduler/core/cluster_action.h"
#include "scheduler/core/job/attempt.h"
#include "scheduler/core/membership.h"

namespace syncline::scheduler {

// A job as it is kept between restarts of the scheduler.
struct StoredJob {
  JobStatus status;
  // Of the model; the assignment names them.
  std::vector<ParameterInfo> parameters;
  std::vector<TableInfo> tables;
  // SubmitBegin.client_key; empty: none.
  std::string client_key = {};
};

// The life of one job, from QUEUED to a final state. Pure, thread-compatible.
//
//   QUEUED --Start--> PREPARING --all prepared--> RUNNING
//   RUNNING --all workers and the evaluator done--> finishing (still RUNNING)
//   finishing --all participants gone--> SUCCEEDED
//   any state before the final one --> FAILED or CANCELLED
//   PREPARING or RUNNING --failed, RetryPolicy--> QUEUED, abandoned
//   abandoned --all participants gone--> waiting: may be given to members again
//
// The loss of a participant fails the job, unless it is done with its part:
// JobStatus.done_ranks, which is durable.
//
// Each Start is an attempt, with a number and a secret of its own. What comes
// from members of an earlier one changes nothing. An attempt begins at a clock;
// evaluations of later clocks, which the one before has made, are forgotten
// when it is abandoned. Artifacts stay until the same name is stored again.
// max_seconds counts from the first attempt that this scheduler has seen.
//
// A job decides what its participants do. The owner holds and frees them:
// it sends StopJob as soon as stopping() is true and calls OnGone for each that
// has released the job or was lost.
class Job {
 public:
  // The first clock of another attempt, after one has failed for `reason`, with
  // what would be the job's exit code; nothing: the job fails.
  using RetryPolicy = std::function<std::optional<int64_t>(
      const JobStatus& job, absl::string_view reason, int exit_code)>;

  struct Options {
    absl::Duration prepare_timeout;
    // How long a first failure waits for its root cause, or for more problems:
    // a worker that cannot reach another member, for the loss of that member to
    // be noticed; a problem with preparing, for the problems of the other
    // members.
    absl::Duration grace;
    RetryPolicy retry = nullptr;  // null: a failed job has failed
  };
  // A member chosen for the job.
  struct Place {
    SessionId session = 0;
    Member member;
  };

  Job(StoredJob stored, Options options);

  // True if the job has test data for an evaluator.
  bool WantsEvaluator() const { return status_.spec().data().has_test(); }

  // QUEUED -> PREPARING with these, by rank; tells them to prepare. Without an
  // evaluator the chief evaluates. `secret`: what only they know.
  void Start(absl::Span<const Place> workers, absl::Span<const Place> ps,
             const std::optional<Place>& evaluator, std::string secret,
             absl::Time now, ClusterActions* actions);

  // Messages of a participant; a message of another member, or one that does
  // not fit the state (late, repeated), is ignored.
  void OnPrepared(SessionId session, const JobPrepared& prepared,
                  absl::Time now, ClusterActions* actions);
  void OnReport(SessionId session, const WorkerReport& report, absl::Time now,
                ClusterActions* actions);
  // The last one comes after the outcome is known, and counts.
  void OnPsReport(SessionId session, const PsReport& report, absl::Time now,
                  ClusterActions* actions);
  // The participant cannot reach another one.
  void OnUnreachable(SessionId session, const PeerUnreachable& report,
                     absl::Time now);
  void OnDone(SessionId session, const JobDone& done, absl::Time now,
              ClusterActions* actions);
  // The participant has left the job: it released it after StopJob, or it was
  // lost, for the reason `lost` ("stream closed"), empty if not lost.
  void OnGone(SessionId session, absl::string_view lost, absl::Time now,
              ClusterActions* actions);
  // The participant of `older` has the stream `session` now. It gets the
  // commands again that it may not have received: a repeat changes nothing
  // there. `has_job`: it has been told to prepare.
  void OnResumed(SessionId older, SessionId session, bool has_job,
                 ClusterActions* actions);
  // `member` says, in an activity, which results it has kept. If it took part
  // in the job, and that has ended without them, the reason names them.
  void OnKeptResults(const Member& member, const std::string& activity,
                     ClusterActions* actions);
  void OnTick(absl::Time now, ClusterActions* actions);
  // A scheduler has started with this job, which is neither queued nor final.
  // The job has succeeded if all participants were done, else it has failed.
  void OnRestart(absl::Time now, ClusterActions* actions);

  // REQUIRES: not final.
  void Cancel(absl::string_view reason, absl::Time now,
              ClusterActions* actions);
  void Fail(absl::string_view reason, int exit_code, absl::Time now,
            ClusterActions* actions);

  // True once, after the job has failed.
  bool TakeFailure();
  // The job has failed as `earlier` did, which was the same work: it would fail
  // so again. REQUIRES: it has failed.
  void MarkRepeated(const std::string& earlier);

  void SetQueueState(uint32_t position, absl::string_view waiting_for,
                     ClusterActions* actions);
  void AddArtifact(const Artifact& artifact, ClusterActions* actions);
  void ClearArtifacts(ClusterActions* actions);

  // Participants should stop: the outcome is known.
  bool stopping() const {
    return attempt_->finishing || attempt_->abandoned || IsOver();
  }
  // No member has it, and it can be given to some.
  bool IsWaiting() const {
    return status_.state() == QUEUED && !attempt_->abandoned;
  }
  // True for what a member of the present attempt has sent. Members that do not
  // name an attempt know of one alone.
  bool IsOfAttempt(uint32_t attempt) const {
    return attempt == status_.attempt() ||
           (attempt == 0 && status_.attempt() == 1);
  }
  std::string StopReason() const;
  bool IsOver() const;  // in a final state
  // Of the last transition.
  absl::Time since() const;

  const std::string& id() const { return status_.job_id(); }
  // A copy with the progress as of `now`. Participants are without their
  // incarnations, here and in status(): those are no one else's business.
  JobStatus Status(absl::Time now) const;
  const JobStatus& status() const { return status_; }
  const std::vector<ParameterInfo>& parameters() const { return parameters_; }
  const std::vector<TableInfo>& tables() const { return tables_; }
  // As PsReports says.
  absl::StatusOr<JobTableStatus> TableStatus(absl::Time now) const {
    return attempt_->ps_reports.TableStatus(id(), now);
  }
  absl::Span<const JobProgressTracker::CurvePoint> curve() const;
  // As JobMembers says.
  absl::StatusOr<SessionId> WorkerSession(uint32_t rank) const {
    return attempt_->members.WorkerSession(rank, id());
  }
  // Remembers that this worker was asked for a profile until it has stored it;
  // returns what to ask. Errors: as ProfileRequests::Add.
  absl::StatusOr<SchedulerMessage> RequestProfile(uint32_t rank,
                                                  uint32_t steps);
  // Of the last Start: the members of that attempt alone have it.
  const JobPass& pass() const { return attempt_->pass; }
  // Sessions that have not gone.
  std::vector<SessionId> Participants() const {
    return attempt_->members.Sessions();
  }

 private:
  // Whether this process trained or evaluated, as the record has it.
  bool HasWorker(const Member& member) const;
  // Adds the clocks that the ps have skipped to the progress.
  void CountSkipped(ClusterActions* actions);
  void AddDoneRank(uint32_t rank);
  // Writes down whom the job waits for (JobMembers::WaitingText).
  void UpdateWaitingFor(ClusterActions* actions);
  // `reason`, and where results are that could not be stored.
  std::string WithWaitingFor(absl::string_view reason) const;
  void Join(const Place& place, JobMember::Role role, uint32_t rank,
            Participant* out);
  SchedulerMessage Prepare() const;
  // The attempt has failed. True if there will be another one.
  bool Abandon(absl::string_view reason, int exit_code, absl::Time now,
               ClusterActions* actions);
  void EndIfAllGone(absl::Time now, ClusterActions* actions);
  void FailUnprepared(absl::Time now, ClusterActions* actions);
  void BeginRun(absl::Time now, ClusterActions* actions);
  void Succeed(absl::string_view how, absl::Time now, ClusterActions* actions);
  std::string LossText(const JobMember& member, absl::string_view lost) const;
  void Transition(JobState state, absl::string_view reason, absl::Time now,
                  ClusterActions* actions);

  const Options options_;
  const std::vector<ParameterInfo> parameters_;
  const std::vector<TableInfo> tables_;
  JobStatus status_;
  std::optional<Attempt> attempt_;  // there from the constructor on
  bool has_just_failed_ = false;    // TakeFailure
  absl::Time started_ = absl::InfiniteFuture();  // its first attempt
};

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_CORE_JOB_JOB_H_
