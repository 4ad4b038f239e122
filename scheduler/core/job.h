#ifndef SYNCLINE_SCHEDULER_CORE_JOB_H_
#define SYNCLINE_SCHEDULER_CORE_JOB_H_

#include <cstdint>
#include <map>
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
#include "scheduler/core/data_comparison.h"
#include "scheduler/core/job_progress.h"
#include "scheduler/core/membership.h"
#include "scheduler/core/progress_watchdog.h"
#include "scheduler/core/unreachable_pairs.h"

namespace syncline::scheduler {

// A job as it is kept between restarts of the scheduler.
struct StoredJob {
  JobStatus status;
  // Of the model; what the assignment names.
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
//
// The loss of a participant fails the job, unless it is done with its part:
// JobStatus.done_ranks, which is durable.
//
// It decides what its participants should do; holding and freeing them is the
// owner's business, which sends StopJob as soon as stopping() is true and calls
// OnGone for each that has released the job or was lost.
class Job {
 public:
  struct Timing {
    absl::Duration prepare_timeout;
    // How long a first failure waits for a better reason or for more of them: a
    // worker that cannot reach somebody, for that somebody's loss to be
    // noticed; a problem with preparing, for those of the others.
    absl::Duration grace;
  };
  // A member chosen for the job.
  struct Place {
    SessionId session = 0;
    Member member;
  };

  Job(StoredJob stored, Timing timing);

  // True if the job has test data for an evaluator.
  bool WantsEvaluator() const { return status_.spec().data().has_test(); }

  // QUEUED -> PREPARING with these, by rank; tells them to prepare. Without an
  // evaluator the chief evaluates.
  void Start(absl::Span<const Place> workers, absl::Span<const Place> ps,
             const std::optional<Place>& evaluator, absl::Time now,
             ClusterActions* actions);

  // Messages of a participant; a message of anybody else, or one that does not
  // fit the state (late, repeated), is ignored.
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
  // The participant of `older` has the stream `session` now. It is told again
  // what it may not have heard: a repeat changes nothing there. `has_job`: it
  // has been told to prepare.
  void OnResumed(SessionId older, SessionId session, bool has_job,
                 ClusterActions* actions);
  // `member` says, in an activity, which results it has kept. If it took part
  // in the job, and that has ended without them, the reason names them.
  void OnKeptResults(const Member& member, const std::string& activity,
                     ClusterActions* actions);
  void OnTick(absl::Time now, ClusterActions* actions);
  // A scheduler has started with this job, which is neither queued nor final.
  // It has succeeded if all were done, else failed.
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
  bool stopping() const { return finishing_ || IsOver(); }
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
  // The tables as the ps last reported them, with as many of their hot keys as
  // one answer has room for. Errors: ResourceExhausted: there are too many.
  absl::StatusOr<JobTableStatus> TableStatus(absl::Time now) const;
  absl::Span<const JobProgressTracker::CurvePoint> curve() const;
  // Of the worker with this rank. Errors: InvalidArgument: there is none, or it
  // is the evaluator's; FailedPrecondition: it has done all its steps.
  absl::StatusOr<SessionId> WorkerSession(uint32_t rank) const;
  // Remembers that this worker was asked for a profile until it has stored it;
  // returns what to ask, with the name to store it by. Errors:
  // ResourceExhausted: too many are still to come from the worker, or there and
  // to come of the job.
  absl::StatusOr<SchedulerMessage> WishForProfile(uint32_t rank,
                                                  uint32_t steps);
  // Sessions that have not gone.
  std::vector<SessionId> Participants() const;

 private:
  enum class Stage { kPreparing, kPrepared, kGone };
  enum class Role { kWorker, kEvaluator, kPs };
  struct Party {
    SessionId session = 0;
    Participant participant;
    Role role = Role::kWorker;
    Stage stage = Stage::kPreparing;
    bool done = false;    // with its part; results are stored
    bool failed = false;  // JobDone with another code than 0
    std::vector<std::string> problems = {};  // of preparing
    std::string activity = {};               // as it said last; empty: none
  };
  struct PsView {
    absl::Time time;
    PsReport report;
  };
  // A failure that waits for a better reason.
  struct Suspicion {
    std::string reason;
    absl::Time until;
  };

  // A profile to come.
  struct Wish {
    uint32_t rank = 0;
    ProfileSteps steps;
  };

  Party* Find(SessionId session);
  // Whether this process trained or evaluated, as the record has it.
  bool HasWorker(const Member& member) const;
  // Takes what the ps have skipped into the progress.
  void CountSkipped(ClusterActions* actions);
  bool All(Stage stage) const;
  void AddDoneRank(uint32_t rank);
  // Says whom the job waits for: while it prepares those who have not answered;
  // then those who say what they wait for, and the evaluator if the workers are
  // done and it is not.
  void UpdateWaitingFor(ClusterActions* actions);
  // The repeat of an evaluation is no progress.
  void Watch(const Party& party, const WorkerReport& report,
             bool has_new_evaluation, absl::Time now);
  void AddWaitingFor(const Party& party, std::string* text) const;
  // `reason`, and where results are that could not be stored.
  std::string WithWaitingFor(absl::string_view reason) const;
  bool WorkersAreDone() const;
  void Join(const Place& place, Role role, uint32_t rank, Participant* out);
  // True if this participant evaluates: the evaluator, or else the chief.
  bool Evaluates(const Party& party) const;
  static Participant* AddParticipant(Role role, JobAssignment* assignment);
  SchedulerMessage PrepareMessage() const;
  SchedulerMessage RunMessage() const;
  // Why the job cannot go on although everybody is there; nothing if it can.
  std::optional<std::string> Obstacle(absl::Time now) const;
  void FailUnprepared(absl::Time now, ClusterActions* actions);
  void BeginRun(absl::Time now, ClusterActions* actions);
  void Succeed(absl::string_view how, absl::Time now, ClusterActions* actions);
  // "\nwarning: ..." if a step takes more samples than there are; else empty.
  std::string StepWarning() const;
  void FinishIfAllGone(absl::Time now, ClusterActions* actions);
  bool HasProfile(absl::string_view prefix) const;
  // A worker records them in order: who stored this one stores none before it.
  void ForgetWishesUpTo(const std::string& artifact);
  std::string LossText(const Party& party, absl::string_view lost) const;
  void Transition(JobState state, absl::string_view reason, absl::Time now,
                  ClusterActions* actions);

  const Timing timing_;
  const std::vector<ParameterInfo> parameters_;
  const std::vector<TableInfo> tables_;
  JobStatus status_;
  std::vector<Party> parties_;  // workers by rank, evaluator, ps by rank
  // As the chief has said.
  int64_t clocks_per_epoch_ = 0;
  int64_t clocks_total_ = 0;
  uint64_t train_samples_ = 0;
  DataComparison data_;  // while it is prepared
  std::optional<JobProgressTracker> progress_;
  std::map<uint32_t, PsView> ps_views_;  // by rank
  std::vector<Wish> wishes_;             // in order
  std::optional<Suspicion> suspicion_;
  UnreachablePairs unreachable_;
  bool has_just_failed_ = false;              // TakeFailure
  std::optional<ProgressWatchdog> watchdog_;  // while it runs
  // Somebody has a problem with preparing; the others may answer until then.
  absl::Time refused_by_ = absl::InfiniteFuture();
  bool finishing_ = false;
  absl::Time started_ = absl::InfiniteFuture();
  absl::Time running_since_ = absl::InfiniteFuture();
};

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_CORE_JOB_H_
