#ifndef SYNCLINE_SCHEDULER_CORE_JOB_JOB_H_
#define SYNCLINE_SCHEDULER_CORE_JOB_JOB_H_

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/job/evaluate_validator.h"
#include "proto/job.pb.h"
#include "proto/scheduler.pb.h"
#include "proto/scheduler_state.pb.h"
#include "scheduler/core/cluster_action.h"
#include "scheduler/core/job/attempt.h"
#include "scheduler/core/job/checkpoint_requests.h"
#include "scheduler/core/job/restart_policy.h"
#include "scheduler/core/membership.h"
#include "scheduler/core/stored_event.h"

namespace syncline::scheduler {

// A job as it is kept between restarts of the scheduler.
struct StoredJob {
  JobStatus status;
  // Of the model; the assignment names them.
  std::vector<ParameterInfo> parameters;
  std::vector<TableInfo> tables;
  // SubmitBegin.client_key; empty: none.
  std::string client_key = {};
  std::vector<StoredEvent> events = {};
  // Of a job that is prepared or runs. Unset: of a release that did not keep
  // it.
  std::optional<AttemptRecord> attempt = {};
};

// The part of a job that changes and is durable, at one moment.
struct JobRecord {
  JobStatus status;
  std::optional<AttemptRecord> attempt = {};
};

// The life of one job, from QUEUED to a final state. Pure, thread-compatible.
//
//   QUEUED --Start--> PREPARING --all prepared--> RUNNING
//   RUNNING --all workers and the evaluator done--> finishing (still RUNNING)
//   finishing --all participants gone--> SUCCEEDED
//   any state before the final one --> FAILED or CANCELLED
//   PREPARING or RUNNING --failed, DecideRestart--> QUEUED, abandoned
//   abandoned --all participants gone--> waiting: may be given to members again
//
// The loss of a participant fails the job, unless it is done with its part:
// JobStatus.done_ranks, which is durable; or the others can go on without it
// (job_losses.cc): then it counts as done, and JobStatus.lost_workers has it.
//
// Each Start is an attempt, with a number and a secret of its own. What comes
// from members of an earlier one changes nothing. An attempt starts from the
// job's last checkpoint, or from what the job starts from, if it has none;
// evaluations of later clocks, which the one before has made, are forgotten
// when it is abandoned. If the checkpoint is damaged, the next attempt starts
// from the one before it; if a ps cannot see it, the next one tries it again;
// if it was deleted, and later ones are there, the next one starts from the
// last of these.
// Artifacts stay until the same name is stored again.
// max_seconds counts from the first attempt that this scheduler has seen, or,
// of an attempt that it took up, from the job's first one.
//
// A job decides what its participants do. The owner holds and frees them:
// it sends StopJob as soon as stopping() is true and calls OnGone for each that
// has released the job or was lost.
class Job {
 public:
  struct Options {
    absl::Duration prepare_timeout;
    // How long a first failure waits for its root cause, or for more problems:
    // a worker that cannot reach another member, for the loss of that member to
    // be noticed; a problem with preparing, for the problems of the other
    // members.
    absl::Duration grace;
  };
  // A member chosen for the job.
  struct Place {
    SessionId session = 0;
    Member member;
  };

  Job(StoredJob stored, Options options);

  // True if the job has test data for an evaluator.
  // A job that may end early holds its workers until that is decided, which is
  // for the chief to do: it has to export the same values.
  // Evaluations of checkpoints hold nobody.
  bool WantsEvaluator() const {
    if (OnlyEvaluates(status_.spec())) return false;
    return status_.spec().data().has_test() &&
           (NeedsEvaluator() || !status_.spec().has_stop());
  }
  // True if it cannot do without: nobody else evaluates its checkpoints.
  bool NeedsEvaluator() const { return EvaluatesCheckpoints(status_.spec()); }

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
  // A ps has taken out a worker that the job goes on without, or could not.
  void OnTakenOut(SessionId session, const WorkerTakenOut& answer,
                  absl::Time now, ClusterActions* actions);
  // The participant cannot reach another one.
  void OnUnreachable(SessionId session, const PeerUnreachable& report,
                     absl::Time now);
  void OnDone(SessionId session, const JobDone& done, absl::Time now,
              ClusterActions* actions);
  // The participant has left the job: it released it after StopJob, or it was
  // lost, for the reason `lost` ("stream closed"), empty if not lost.
  void OnGone(SessionId session, absl::string_view lost, absl::Time now,
              ClusterActions* actions);
  // The participant of `older`, which was told to stop, has the stream
  // `session` now.
  void Rebind(SessionId older, SessionId session);
  // The participant of `older` has the stream `session` now. It gets the
  // commands again that it may not have received: a repeat changes nothing
  // there. `has_job`: it has been told to prepare. `clock`: those that it has
  // closed, of a worker; 0: it does not say. A worker that the job has let go
  // is among TakeLeavers again. One without the job, which runs, must say soon
  // that it is done: where the record is from a backup it has no part in it.
  void OnResumed(SessionId older, SessionId session, bool has_job,
                 int64_t clock, absl::Time now, ClusterActions* actions);
  // `member` says, in an activity, which results it has kept. If it took part
  // in the job, and that has ended without them, the reason names them.
  void OnKeptResults(const Member& member, const std::string& activity,
                     ClusterActions* actions);
  // `member` reports a checkpoint, while the job is QUEUED for its next
  // attempt, or has FAILED or was CANCELLED: the members of the attempt before
  // may not all have left, or the scheduler was away. It counts if it is of
  // that attempt, by its chief: it is whole, and earlier ones may have been
  // deleted for it. While the next attempt is PREPARING it counts, too: what
  // that attempt starts from may be gone, and the one behind it knows better.
  // One behind a change of the regime that the record does not have does not
  // count.
  // Evaluations of that attempt count up to where the job goes on.
  void OnLateReport(const Member& member, const WorkerReport& report,
                    absl::Time now, ClusterActions* actions);
  void OnTick(absl::Time now, ClusterActions* actions);
  // A scheduler has started with this job, whose members an earlier one had
  // told to prepare or to run, and which are not all done: its record says who
  // they are.
  bool CanBeTakenUp() const;
  // The job goes on where it is. Its members have the sessions that
  // `next_session` gives, until OnResumed. REQUIRES: CanBeTakenUp().
  void TakeUp(absl::FunctionRef<SessionId()> next_session, absl::Time now,
              ClusterActions* actions);
  // A scheduler has started with this job, which is neither queued nor final
  // and cannot be taken up. The job has succeeded if all participants were
  // done, else it has failed.
  void OnRestart(absl::Time now, ClusterActions* actions);

  // Its next attempts have larger numbers than `attempt`, because members may
  // know of that one.
  void RaiseAttempt(uint32_t attempt) {
    attempt_floor_ = std::max(attempt_floor_, attempt);
  }

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
  // While it waits for an attempt that is not its first: not before. The past
  // where there is no such wait.
  absl::Time restart_time() const { return RestartTime(status_); }
  std::string StopReason() const;
  bool IsOver() const;  // in a final state
  // Of the last transition.
  absl::Time since() const;
  // Clocks that the slowest worker has closed; -1: it does not run.
  int64_t min_clock() const {
    return status_.state() == RUNNING && attempt_->progress.has_value()
               ? attempt_->progress->MinClock()
               : -1;
  }
  // ProgressWatchdog's, of this attempt; InfinitePast: it does not run.
  absl::Time moved_within_clock() const {
    return status_.state() == RUNNING ? attempt_->health.moved_within_clock()
                                      : absl::InfinitePast();
  }

  const std::string& id() const { return status_.job_id(); }
  // A copy with the progress as of `now`. Participants are without their
  // incarnations, here and in status(): those are no one else's business.
  JobStatus Status(absl::Time now) const;
  const JobStatus& status() const { return status_; }
  // The record that a scheduler which starts anew must have of it.
  JobRecord Record(absl::Time now) const;
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
  // Asks the chief for another regime; returns what to ask. Errors:
  // FailedPrecondition: a change is under way, or the job is tied to SYNC
  // because its number of workers changes; ResourceExhausted: there have been
  // too many; InvalidArgument: the job cannot, by field.
  absl::StatusOr<SchedulerMessage> RequestRegime(
      const ChangeRegimeRequest& request);
  // The outcome of the last change that was asked for. None: it is under way.
  // Errors: FailedPrecondition: it was not made, or this cannot be known, and
  // why.
  std::optional<absl::StatusOr<RegimeTransition>> RegimeOutcome() const;
  // Has the chief make a checkpoint at the next cut that is possible. The
  // answer is a CheckpointAnswered with this number: it is whole, why there is
  // none, or the job has left RUNNING. Errors: FailedPrecondition: it has no
  // `checkpoint`, or does not run; ResourceExhausted: too many are asked for;
  // Unavailable: a worker is absent, so that nobody knows how far the job is.
  absl::Status RequestCheckpoint(uint64_t request, absl::Time now,
                                 ClusterActions* actions);
  // Sentences for people about checkpoints that were skipped, or could not be
  // evaluated, since the last call.
  std::vector<std::string> TakeEvaluationNotes();
  // It takes part in the present attempt, and has not gone.
  bool HasMember(SessionId session) const;
  // The attempt would go on if it lost this member now.
  bool GoesOnWithout(SessionId session) const;
  // Workers that have nothing more to do, since the job ends early, or since
  // the chief has made the last step of a job whose clocks end without some
  // workers, or since they are about to end and the others go on: they are to
  // be stopped. Each once.
  std::vector<SessionId> TakeLeavers();
  // Why they are stopped (StopJob.reason).
  absl::string_view LeaveReason() const;
  // The evaluator has ended the job early, and this worker was let go: its
  // values are later ones, and no result of the job.
  bool WasLetGo(SessionId session) const;
  // Whether the job can leave `member`, which takes part in it: go on from a
  // checkpoint on others. Errors: FailedPrecondition: it cannot, why, and how
  // long it will still run.
  absl::Status CheckCanLeave(const Member& member, absl::Time now) const;
  // The job is to leave one of its members, `why`: as soon as a checkpoint is
  // whole, which is asked for with this number, its attempt ends, and the next
  // one is given to others. That is no failure: it counts against no limit. To
  // be repeated until it has left: a checkpoint that fails is asked for again
  // after a while. A job that has made its last step is not moved, nor one that
  // is moved for the sake of its number of workers alone (`for_scale`) and has
  // the one that it should have when the checkpoint is whole. False: nothing is
  // asked for now.
  bool RequestMove(uint64_t request, absl::string_view why, bool for_scale,
                   absl::Time now, ClusterActions* actions);
  // A checkpoint has been asked for, to go on from it on others.
  bool IsMoving() const {
    return attempt_->move.has_value() && attempt_->move->request != 0;
  }
  // Whether its next attempts can have so many workers. Errors:
  // InvalidArgument: the job allows no such number; FailedPrecondition: it
  // cannot have another number, now or at all, and why.
  absl::Status CheckScale(uint32_t workers) const;
  // Its next attempts are to have so many workers. False: it has, and is to
  // have, as many already; nothing has changed. REQUIRES: CheckScale is OK.
  bool Scale(uint32_t workers, absl::string_view reason,
             ClusterActions* actions);
  // It may be moved for the sake of more workers: people have just asked for
  // them, or it has run for so long. REQUIRES: RUNNING.
  bool MayTakeMore(absl::Time now, absl::Duration pause) const;
  // Why it is moved to so many workers: what people have said, or else `why`.
  std::string ScaleText(uint32_t workers, absl::string_view why) const;
  // Of the last Start: the members of that attempt alone have it.
  const JobPass& pass() const { return attempt_->pass; }
  // Of the last Start, also those that have gone.
  const std::vector<JobMember>& members() const {
    return attempt_->members.all();
  }
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
  // A worker or the evaluator has just become done: the attempt finishes if it
  // was the last one.
  void FinishIfDone(ClusterActions* actions);
  // A chief that was done when it came back has stored its results before, and
  // the job does not have them: its record is from a backup.
  bool StoredElsewhere(const JobMember& member) const;
  // Writes down whom the job waits for (JobMembers::WaitingText).
  void UpdateWaitingFor(ClusterActions* actions);
  // True if the report, of the chief, says how a checkpoint has ended.
  bool TakeCheckpointReport(const WorkerReport& report,
                            ClusterActions* actions);
  // In its present regime.
  bool TrainsWithoutPs() const;
  // Has the regime changed if one of the job's rules wants it.
  void ApplyRegimeRules(const WorkerReport& report, bool is_new_evaluation,
                        const JobMember& member, absl::Time now,
                        ClusterActions* actions);
  void TakeRegimeReport(const RegimeTransition& transition, absl::Time now,
                        ClusterActions* actions);
  // job_moves.cc: the same for those who have asked for one.
  void AnswerCheckpointReport(const WorkerReport& report, absl::Time now,
                              ClusterActions* actions);
  void AnswerCheckpoints(const std::vector<uint64_t>& requests,
                         const absl::StatusOr<CheckpointInfo>& outcome,
                         absl::Time now, ClusterActions* actions);
  void AnswerOverdueCheckpoints(absl::Time now, ClusterActions* actions);
  SchedulerMessage WriteCheckpointCommand() const;
  // job_scale.cc: it has the number of workers that it should have, and may not
  // have another one. REQUIRES: RUNNING.
  bool HasItsWorkers() const;
  // Its steps are done, or it ends early: what is left is to store its results.
  // REQUIRES: RUNNING.
  bool IsAtItsEnd() const;
  // True for the member that decides whether the job ends early, and stores its
  // results then: the chief, or the evaluator of the job's checkpoints.
  bool DecidesEnd(const JobMember& member) const;
  // The chief of a job whose clocks end without some workers is done: it waits
  // for no other worker.
  bool EndsWithTheChief() const;
  // It has evaluated the last values before the last clock (StopSpec).
  bool EndsEarly(const JobMember& member, const WorkerReport& report) const;
  // job_evaluations.cc: of jobs whose checkpoints are evaluated. What a report
  // or an attempt's begin brings, and what the evaluator is to do next.
  void BeginEvaluations(ClusterActions* actions);
  // The workers are done, so no more checkpoints come.
  void EndCheckpoints();
  void TakeEvaluationReport(const JobMember& member, const WorkerReport& report,
                            ClusterActions* actions);
  void SendNextEvaluation(ClusterActions* actions);
  // Sends again the order that the evaluator may have lost with its old stream.
  void RepeatEvaluation(SessionId session, ClusterActions* actions) const;
  SchedulerMessage EvaluateCommand(const CheckpointInfo& checkpoint) const;
  // All workers, but one that decides the end, are done where they are.
  void LetWorkersGo(ClusterActions* actions);
  // `reason`, and where results are that could not be stored.
  std::string WithWaitingFor(absl::string_view reason) const;
  void Join(const Place& place, JobMember::Role role, uint32_t rank,
            Participant* out);
  SchedulerMessage Prepare() const;
  // The attempt has failed, and ends; there will be another one.
  void Abandon(absl::string_view reason, absl::string_view which,
               absl::Time now, ClusterActions* actions);
  // The job is QUEUED, and a later checkpoint is there than the one by which
  // its last transition says where it goes on.
  void GoOnFromLater(const std::string& was_to_start);
  void TakeLateEvaluation(Evaluation evaluation, absl::Time now);
  void EndIfAllGone(absl::Time now, ClusterActions* actions);
  bool AllAreDone() const;
  void FailUnprepared(absl::Time now, ClusterActions* actions);
  // The present attempt's checkpoint is gone, and members have found later
  // ones: the record has them. False: it has not changed.
  bool TakeFoundCheckpoints(absl::Time now, ClusterActions* actions);
  // job_scale.cc. The members of an attempt with more workers than ran before,
  // or with as many as people have just said, have `problems`: the job goes
  // back to the number that ran. False: it is not such an attempt; nothing has
  // changed.
  bool GoBackToWorkersThatRan(absl::string_view problems, absl::Time now,
                              ClusterActions* actions);
  void BeginRun(absl::Time now, ClusterActions* actions);
  // "\nwarning: ..." for each source that is not what the attempt before had.
  std::string OtherDataWarning() const;
  void Succeed(absl::string_view how, absl::Time now, ClusterActions* actions);
  std::string LossText(const JobMember& member, absl::string_view lost) const;
  // job_losses.cc: the attempt can go on if it loses this member; it goes on
  // without the worker that it has lost.
  bool MayGoOnWithout(const JobMember& member) const;
  void GoOnWithout(JobMember* member, absl::string_view loss, absl::Time now,
                   ClusterActions* actions);
  // "; before that worker 1 at ... was lost: ..." where it has gone on without
  // some.
  std::string LossesText() const;
  SchedulerMessage RemovalCommand(const JobStatus::Lost& lost) const;
  // This member is told of the workers that are lost.
  bool HearsOfLosses(const JobMember& member) const;
  void Transition(JobState state, absl::string_view reason, absl::Time now,
                  ClusterActions* actions);

  const Options options_;
  const std::vector<ParameterInfo> parameters_;
  const std::vector<TableInfo> tables_;
  JobStatus status_;
  // Of the record that this scheduler began with, until TakeUp.
  std::optional<AttemptRecord> stored_attempt_;
  std::optional<Attempt> attempt_;          // there from the constructor on
  CheckpointRequests checkpoint_requests_;  // while it is RUNNING
  uint32_t attempt_floor_ = 0;              // RaiseAttempt
  // The attempt before the last Start, of this scheduler's time; 0: none.
  struct Earlier {
    uint32_t attempt = 0;
    Member chief = {};
  };
  Earlier earlier_;
  // The evaluations of the job when it was last abandoned, in this scheduler's
  // time; unset: it was not.
  std::optional<google::protobuf::RepeatedPtrField<Evaluation>>
      abandoned_evaluations_;
  // The last attempt whose chief has told too late of a change of the regime;
  // 0: none.
  uint32_t late_regime_of_ = 0;
  // Workers of the last attempt that was RUNNING, of this scheduler's time; 0:
  // none.
  uint32_t ran_with_ = 0;
  // The data of that attempt, as its chief saw them.
  std::vector<DataFingerprint::Source> ran_on_;
  bool has_just_failed_ = false;                 // TakeFailure
  absl::Time started_ = absl::InfiniteFuture();  // its first attempt
  std::optional<RegimeTransition> regime_outcome_;
};

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_CORE_JOB_JOB_H_
