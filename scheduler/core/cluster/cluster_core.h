#ifndef SYNCLINE_SCHEDULER_CORE_CLUSTER_CLUSTER_CORE_H_
#define SYNCLINE_SCHEDULER_CORE_CLUSTER_CLUSTER_CORE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "proto/scheduler.pb.h"
#include "scheduler/core/cluster/address_checks.h"
#include "scheduler/core/cluster/closed_streams.h"
#include "scheduler/core/cluster/job_placement.h"
#include "scheduler/core/cluster/job_queue.h"
#include "scheduler/core/cluster/job_records.h"
#include "scheduler/core/cluster/member_uses.h"
#include "scheduler/core/cluster/reattachment.h"
#include "scheduler/core/cluster/state_age.h"
#include "scheduler/core/cluster/tenant_quotas.h"
#include "scheduler/core/cluster_action.h"
#include "scheduler/core/job/job.h"
#include "scheduler/core/job/job_event_log.h"
#include "scheduler/core/membership.h"

namespace syncline::scheduler {

// Every decision of the scheduler: which processes are members, which job runs
// where, which member gets which command. Pure: events and `now` in, actions
// appended to *actions, to be carried out in that order. No thread, socket,
// disk or clock. Thread-compatible.
//
// A member is engaged from the moment a job is placed on it until it has said
// that it released that job, or is lost; only free members are given a job.
class ClusterCore {
 public:
  struct Options {
    std::string version;
    absl::Duration lease = absl::Seconds(5);
    absl::Duration heartbeat = absl::Seconds(1);
    absl::Duration prepare_timeout = absl::Minutes(10);
    // A member that has not released its job by then loses its session.
    absl::Duration release_timeout = absl::Seconds(10);
    absl::Duration grace = absl::Seconds(2);  // Job::Timing
    absl::Duration keep = absl::Hours(24 * 7);
    // JobPlacement has both.
    absl::Duration settle = absl::Seconds(15);
    bool expects_evaluator = false;
    // The cluster is there for one job (Registered.ends_with_scheduler).
    bool ends_with_scheduler = false;
    uint32_t queue_max = 1000;
    // A job is placed only on members whose address has answered as theirs, and
    // a member whose stream closes is asked there whether it is alive. Without:
    // a closed stream is a loss.
    bool confirms_addresses = false;
    // How long a job waits for a member that is alive and whose stream has
    // closed. Longer than an outage that is worth riding out, and shorter than
    // daemons wait (--orphan-seconds). A daemon is back within 5 s of its end:
    // gRPC and the session each pause for up to 2 s.
    absl::Duration register_limit = absl::Seconds(30);
    // How long after its start a scheduler waits for the members of jobs that
    // an earlier one ran.
    absl::Duration reattach_window = absl::Seconds(30);
    // Of this scheduler, durable; the last one before it on this state.
    uint64_t epoch = 1;
    uint64_t previous_epoch = 0;
    // A job that more workers have become free for has run for so long before
    // it is moved to them: a move costs the steps since its checkpoint.
    absl::Duration grow_pause = absl::Minutes(2);
    // Makes the secret of a job's members, which is hard to guess. Empty: there
    // is none now; the job waits for the next event.
    std::function<std::string()> new_secret = nullptr;
  };
  // Why a member is none any more.
  enum class LossCause {
    kLeft,         // its stream ended, and it had no job
    kDied,         // its stream ended during a job, and it does not answer
    kSilent,       // for longer than the lease
    kNotBack,      // it answers, but did not register again
    kNotReleased,  // it did not let go of a job in time
    kReplaced,     // it opened another session
    kRevoked,      // its certificate was revoked
  };
  // Of a member that works for a job, or is being freed from it.
  struct Engagement {
    std::string job_id;
    absl::Time release_by = absl::InfiniteFuture();  // StopJob was sent
    uint32_t stopped_attempt = 0;  // by it; 0: whichever the member has
  };

  explicit ClusterCore(Options options);

  // Takes over the jobs of an earlier scheduler; the first event. A job that
  // was prepared or ran goes on: its members are absent, and are asked at their
  // addresses as those whose streams have closed, until they come back. If its
  // record does not say who they are, it has failed. `unreadable` are ids that
  // are not to be given again.
  void Restore(std::vector<StoredJob> jobs,
               const std::vector<std::string>& unreadable, absl::Time now,
               ClusterActions* actions);

  // Of daemons. Events of a session that has ended are ignored.
  void OnRegister(SessionId session, const Register& request, absl::Time now,
                  ClusterActions* actions);
  void OnMessage(SessionId session, const DaemonMessage& message,
                 absl::Time now, ClusterActions* actions);
  // A member that works for a job is asked at its address first
  // (ClosedStreams): its process may live, and registers again then.
  void OnStreamClosed(SessionId session, absl::Time now,
                      ClusterActions* actions);
  // The certificate of the daemon was revoked: its session ends with `why`, and
  // a member is lost at once, without being asked at its address.
  void OnRevoked(SessionId session, const absl::Status& why, absl::Time now,
                 ClusterActions* actions);
  // The outcome of a ConfirmAddress; AddressConfirmer has the codes.
  void OnAddressAnswer(SessionId session, const absl::Status& answer,
                       absl::Time now, ClusterActions* actions);
  // At least twice per second.
  void OnTick(absl::Time now, ClusterActions* actions);

  // A job that is queued once Submit gets it; until then nothing knows it, so
  // that it can be made durable first. `spec` has its defaults. Errors:
  // ResourceExhausted: the queue is full; Unavailable: shutting down;
  // InvalidArgument: its messages would be too large (message_sizes.h);
  // FailedPrecondition: it needs an evaluator, and the cluster has none.
  absl::StatusOr<StoredJob> Prepare(const JobSpec& spec,
                                    std::vector<ParameterInfo> parameters,
                                    std::vector<TableInfo> tables,
                                    const std::string& job_id, absl::Time now);
  void Submit(StoredJob job, absl::Time now, ClusterActions* actions);
  // As JobRecords says.
  absl::StatusOr<std::optional<std::string>> FindRepeated(
      const std::string& client_key, const JobSpec& spec,
      absl::Span<const Artifact> files) const {
    return jobs_.FindRepeated(client_key, spec, files);
  }
  bool HasClientKey(const std::string& client_key) const {
    return jobs_.HasClientKey(client_key);
  }
  std::string NextJobId() { return jobs_.NextId(); }
  // Errors: ResourceExhausted, Unavailable; as Prepare.
  absl::Status CheckAccepting() const;
  // Whether such a job of `tenant` may be queued. Errors: TenantQuotas'
  // CheckFits and CheckQueue.
  absl::Status CheckQuota(const std::string& tenant, const JobSpec& spec,
                          absl::Span<const ParameterInfo> parameters) const;
  // Counts from now on: jobs that run, run on; those that wait may start, or
  // have to wait longer.
  void SetQuotas(TenantQuotas quotas, absl::Time now, ClusterActions* actions);
  // Errors: NotFound, FailedPrecondition (final already).
  absl::Status Cancel(const std::string& job_id, absl::string_view reason,
                      absl::Time now, ClusterActions* actions);
  // Has a worker of the job record its next steps; returns the name of the
  // artifact to come. Errors: NotFound; InvalidArgument: rank or steps;
  // FailedPrecondition: the job is not running; ResourceExhausted: the worker
  // or the job has as many profiles as it may (common/job/profile_limits.h).
  // Asks the job's chief. Errors: NotFound; FailedPrecondition: it is not
  // running; Job::RequestRegime's.
  absl::Status ChangeRegime(const ChangeRegimeRequest& request,
                            ClusterActions* actions);
  // As Job says; an error where there is no such job any more.
  std::optional<absl::StatusOr<RegimeTransition>> RegimeOutcome(
      const std::string& job_id) const;
  absl::StatusOr<std::string> Profile(const ProfileRequest& request,
                                      ClusterActions* actions);
  // Has the job write a checkpoint; returns the number of the request, which
  // a CheckpointAnswered answers later. Errors: NotFound; those of
  // Job::RequestCheckpoint.
  absl::StatusOr<uint64_t> TakeCheckpoint(const std::string& job_id,
                                          absl::Time now,
                                          ClusterActions* actions);
  // Whether a member's use may become another one; nothing changes. Returns
  // the job that is to leave it. Errors: NotFound: no such member;
  // FailedPrecondition: its job cannot leave it, and why; those of
  // MemberUses::Check.
  absl::StatusOr<SetMemberUseResponse> CheckMemberUse(
      const SetMemberUseRequest& request, absl::Time now) const;
  // REQUIRES: CheckMemberUse is OK, and the use is on disk.
  void SetMemberUse(const SetMemberUseRequest& request, absl::Time now,
                    ClusterActions* actions);
  // Has the job go on with another number of workers, as soon as it has made a
  // checkpoint, and they are free. Errors: NotFound; InvalidArgument: the
  // reason, or a number that the job or its tenant's quota does not allow;
  // FailedPrecondition: Job::CheckScale's.
  absl::Status Scale(const ScaleRequest& request, absl::Time now,
                     ClusterActions* actions);
  // Appends AppendEvents for what has happened to jobs, to be called with the
  // actions of each event.
  void RecordEvents(absl::Time now, ClusterActions* actions);
  // Of a job, from a number on. Errors: NotFound.
  struct EventList {
    std::vector<StoredEvent> events;
    uint64_t left_out = 0;  // that are no longer kept
  };
  absl::StatusOr<EventList> Events(const std::string& job_id,
                                   uint64_t from) const;
  // The uses of members that an earlier scheduler was told; before Restore.
  void RestoreUses(const std::vector<SetMemberUseRequest>& uses);
  // Tells every member, and those that come later, to exit.
  void Shutdown(int exit_code, absl::string_view reason,
                ClusterActions* actions);

  // Files of a job. Errors of CheckUpload: FailedPrecondition: the job is not
  // of the process with this incarnation; Aborted: it has let that process go
  // (Job::WasLetGo), and the file is no log; those of CheckPass.
  absl::Status CheckUpload(const UploadBegin& begin) const;
  // Whether a member may have a file of the job. Errors: NotFound;
  // FailedPrecondition: no attempt of the job has begun; those of CheckPass.
  absl::Status CheckFetch(const DownloadRequest& request) const;
  absl::Status AddArtifact(const std::string& job_id, const Artifact& artifact,
                           ClusterActions* actions);

  // Errors: NotFound.
  absl::StatusOr<const Job*> FindJob(const std::string& job_id) const {
    return jobs_.Get(job_id);
  }
  // Newest first.
  std::vector<const Job*> Jobs() const { return jobs_.NewestFirst(); }
  // Without address and version of the scheduler, and without the members'
  // incarnations: every user may read it. A member that is not confirmed has
  // the reason, in brackets, for a job.
  ClusterStatus Cluster(absl::Time now) const;
  const Membership& membership() const { return membership_; }
  // The epoch that commands carry as SchedulerMessage.scheduler_epoch.
  uint64_t epoch() const { return state_age_.epoch(); }
  // Members that an earlier scheduler gave a job and that have not come back.
  size_t absent_count() const;
  size_t queue_length() const { return queue_.size(); }
  // Members that were told to exit, each once; 0 before Shutdown.
  int shut_down_count() const { return static_cast<int>(told_.size()); }
  size_t engaged_count() const { return engaged_.size(); }
  uint64_t lost_count() const { return lost_count_; }
  // Of these, by cause; a cause that has not come is not in it.
  const std::map<LossCause, uint64_t>& losses() const { return losses_; }

 private:
  // The process of `request` is a member already, with another stream, and goes
  // on as that. False: it cannot; nothing has changed.
  bool Resume(const Membership::Entry& member, SessionId session,
              const Register& request, absl::Time now, ClusterActions* actions);
  // The same of a process that was told to stop its job, whose stream has ended
  // meanwhile. False also where it has none any more: it is without a job now.
  bool ResumeStopped(const Membership::Entry& member, SessionId session,
                     const Register& request, absl::Time now,
                     ClusterActions* actions);
  // The same of a process without a job.
  bool ResumeIdle(const Membership::Entry& member, SessionId session,
                  const Register& request, absl::Time now,
                  ClusterActions* actions);
  // The process takes any index, and one of its kind and host is being asked
  // whether it still lives: the newcomer is to have the index of that, with
  // what its operator has said of it.
  bool MayBeReplacing(const Register& request) const;
  // Of a member whose process has ended, by what it was doing.
  LossCause CauseOfEnd(SessionId session);
  // The stream that a process had before.
  static void EndOlder(SessionId older, ClusterActions* actions);
  // The member of `older` has `session` now.
  void Rebind(SessionId older, SessionId session, absl::Time now);
  // Why this process cannot go on as the absent `member`.
  std::string WhyNotResumed(const Membership::Entry& member,
                            const Register& request);
  // Takes up jobs that an earlier scheduler ran.
  void TakeUp(const std::vector<Job*>& jobs, absl::Time now,
              ClusterActions* actions);
  // A newcomer may know a later state than this one. False: it has seen a newer
  // scheduler, and its session is ended.
  bool CompareState(SessionId session, const Register& request,
                    ClusterActions* actions);
  void Welcome(SessionId session, const Register& request,
               ClusterActions* actions);
  // Welcomes a member that has no job of this scheduler's, and gives it one.
  void Greet(SessionId session, const Register& request, absl::Time now,
             ClusterActions* actions);
  void LoseExpired(absl::Time now, ClusterActions* actions);
  // The member is gone: its job fails, unless it was done with its part.
  void OnMemberLost(SessionId session, LossCause cause, absl::string_view why,
                    absl::Time now, ClusterActions* actions);
  void OnJobDone(SessionId session, const JobDone& done, absl::Time now,
                 ClusterActions* actions);
  void Release(SessionId session, absl::Time now, ClusterActions* actions);
  // If the job is over, or about to be, sends StopJob to the members that still
  // work for it.
  void Settle(Job* job, absl::Time now, ClusterActions* actions);
  // The job's attempt has ended and it waits: it is the next one.
  void WaitAgain(const Job* job);
  void SendStop(SessionId session, const std::string& job_id, uint32_t attempt,
                absl::string_view reason, absl::Time now,
                ClusterActions* actions);
  MemberPool Pool() const;
  // Jobs that go on, with their next attempt, as soon as their members have
  // released the one before: they have their places in the queue already.
  // Without those that hold nobody up (JobPlacement).
  std::vector<const Job*> ReturningJobs(absl::Time now);
  // Whether enough is free for the job and for those of `returning` that come
  // before it, or there are none of these.
  bool LeavesRoom(const Job& job, const MemberPool& pool,
                  absl::Span<const Job* const> returning) const;
  // cluster_events.cc.
  void NoteEvent(const Job& job, absl::string_view kind, absl::string_view text,
                 absl::Time now);
  static int64_t ClockOf(const Job& job);
  // cluster_use.cc. Errors: FailedPrecondition: such a job needs an evaluator,
  // and there is none.
  absl::Status CheckHasEvaluator(const JobSpec& spec) const;
  // Null: no live process has this task.
  const Membership::Entry* FindTask(const Task& task) const;
  // Jobs of drained members go on on others as soon as they have saved.
  void MoveJobs(absl::Time now, ClusterActions* actions);
  // cluster_scale.cc. Jobs that should have other workers than they have go on
  // with them as soon as they have saved.
  void ScaleJobs(absl::Time now, ClusterActions* actions);
  // Those that run, and whose number of workers may be another one. Those that
  // are about to be moved come first: what they leave or take is spoken for.
  std::vector<Job*> JobsToScale();
  // It has more workers than it may have.
  void Shrink(Job* job, absl::Time now, ClusterActions* actions);
  // Jobs give back what they have beyond their own number, as few of them as
  // it takes, if the job that waits can begin then.
  void GiveBack(absl::Span<Job* const> jobs, absl::Time now,
                ClusterActions* actions);
  // Jobs take free workers, up to what they should have, or may have.
  void Grow(absl::Span<Job* const> jobs, absl::Time now,
            ClusterActions* actions);
  // With the job's own members as free ones, those that take jobs: what its
  // next attempt finds.
  MemberPool PoolAfter(const Job& job, MemberPool free) const;
  // Members are about to be free.
  bool IsReleasing() const;
  // It may have more than its own number: nobody else waits, nor does a quota
  // count.
  bool MayTakeMost(const Job& job) const;
  // So many more workers, or as many of them as the tenant's quota allows.
  uint32_t WithinQuota(const Job& job, uint32_t more) const;
  // Has the job make a checkpoint, to go on from it elsewhere; `for_scale` as
  // Job::RequestMove has it.
  void Move(Job* job, absl::string_view why, bool for_scale, absl::Time now,
            ClusterActions* actions);
  // The members that no job is given to, for one that waits; empty: none.
  std::string UnusedText() const;
  void ConfirmAddresses(absl::Time now, ClusterActions* actions);
  void StartJobs(absl::Time now, ClusterActions* actions);
  void Place(Job* job, const MemberPool& free, bool takes_most,
             std::string secret, absl::Time now, ClusterActions* actions);
  void UpdateQueue(const std::map<std::string, TenantAmounts>& uses,
                   absl::Time now, ClusterActions* actions);
  // The amounts that the jobs of each tenant have, by tenant; empty where no
  // waiting job is of a tenant with a quota. Looks at every job there is.
  std::map<std::string, TenantAmounts> QuotaUse() const;
  std::string WhyQuotaWaits(
      const Job& job, const std::map<std::string, TenantAmounts>& uses) const;
  // The job this member is engaged for, if it is known; else null.
  Job* JobOf(SessionId session);

  const Options options_;
  Membership membership_;
  AddressChecks address_checks_;
  ClosedStreams closed_streams_;
  Reattachment reattachment_;
  StateAge state_age_;
  JobQueue queue_;
  JobPlacement placement_;
  TenantQuotas quotas_;
  JobRecords jobs_;
  MemberUses uses_;
  std::map<std::string, JobEventLog> events_;  // by job
  std::set<std::string> noted_;                // jobs with a new one
  std::map<SessionId, Engagement> engaged_;
  uint64_t checkpoint_requests_ = 0;  // so far
  // The least that a waiting job needs: the first one that waits for members
  // which others have; none: there is no such job.
  std::optional<Capacity> held_up_;
  uint64_t lost_count_ = 0;
  std::map<LossCause, uint64_t> losses_;
  bool shut_down_ = false;
  SchedulerMessage shutdown_;  // what newcomers are told then
  std::set<uint64_t> told_;    // it, by incarnation
};

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_CORE_CLUSTER_CLUSTER_CORE_H_
