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
#include "proto/scheduler.pb.h"
#include "scheduler/core/cluster/address_checks.h"
#include "scheduler/core/cluster/closed_streams.h"
#include "scheduler/core/cluster/job_placement.h"
#include "scheduler/core/cluster/job_queue.h"
#include "scheduler/core/cluster/job_records.h"
#include "scheduler/core/cluster_action.h"
#include "scheduler/core/job/job.h"
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
    // Makes the secret of a job's members, which is hard to guess. Empty: there
    // is none now; the job waits for the next event.
    std::function<std::string()> new_secret = nullptr;
    Job::RetryPolicy retry = nullptr;
  };
  // Of a member that works for a job, or is being freed from it.
  struct Engagement {
    std::string job_id;
    absl::Time release_by = absl::InfiniteFuture();  // StopJob was sent
    uint32_t stopped_attempt = 0;  // by it; 0: whichever the member has
  };

  explicit ClusterCore(Options options);

  // Takes over the jobs of an earlier scheduler; the first event. A job that
  // was running has failed. `unreadable` are ids that are not to be given
  // again.
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
  // The outcome of a ConfirmAddress; AddressConfirmer has the codes.
  void OnAddressAnswer(SessionId session, const absl::Status& answer,
                       absl::Time now, ClusterActions* actions);
  // At least twice per second.
  void OnTick(absl::Time now, ClusterActions* actions);

  // A job that is queued once Submit gets it; until then nothing knows it, so
  // that it can be made durable first. `spec` has its defaults. Errors:
  // ResourceExhausted: the queue is full; Unavailable: shutting down;
  // InvalidArgument: its messages would be too large (message_sizes.h).
  absl::StatusOr<StoredJob> Prepare(const JobSpec& spec,
                                    std::vector<ParameterInfo> parameters,
                                    std::vector<TableInfo> tables,
                                    const std::string& job_id, absl::Time now);
  void Submit(StoredJob job, absl::Time now, ClusterActions* actions);
  // As JobRecords says.
  absl::StatusOr<std::optional<std::string>> FindRepeated(
      const std::string& client_key, const JobSpec& spec,
      const Artifact& model) const {
    return jobs_.FindRepeated(client_key, spec, model);
  }
  bool HasClientKey(const std::string& client_key) const {
    return jobs_.HasClientKey(client_key);
  }
  std::string NextJobId() { return jobs_.NextId(); }
  // Errors: ResourceExhausted, Unavailable; as Prepare.
  absl::Status CheckAccepting() const;
  // Errors: NotFound, FailedPrecondition (final already).
  absl::Status Cancel(const std::string& job_id, absl::string_view reason,
                      absl::Time now, ClusterActions* actions);
  // Has a worker of the job record its next steps; returns the name of the
  // artifact to come. Errors: NotFound; InvalidArgument: rank or steps;
  // FailedPrecondition: the job is not running; ResourceExhausted: the worker
  // or the job has as many profiles as it may (common/job/profile_limits.h).
  absl::StatusOr<std::string> Profile(const ProfileRequest& request,
                                      ClusterActions* actions);
  // Tells every member, and those that come later, to exit.
  void Shutdown(int exit_code, absl::string_view reason,
                ClusterActions* actions);

  // Files of a job. Errors of CheckUpload: FailedPrecondition: the job is not
  // of the process with this incarnation; those of CheckPass.
  absl::Status CheckUpload(const UploadBegin& begin) const;
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
  size_t queue_length() const { return queue_.size(); }
  // Members that were told to exit, each once; 0 before Shutdown.
  int shut_down_count() const { return static_cast<int>(told_.size()); }
  size_t engaged_count() const { return engaged_.size(); }
  uint64_t lost_count() const { return lost_count_; }

 private:
  // The process of `request` is a member already, with another stream, and goes
  // on as that. False: it cannot; nothing has changed.
  bool Resume(const Membership::Entry& member, SessionId session,
              const Register& request, absl::Time now, ClusterActions* actions);
  void Welcome(SessionId session, const Register& request,
               ClusterActions* actions);
  void LoseExpired(absl::Time now, ClusterActions* actions);
  // The member is gone: its job fails, unless it was done with its part.
  void OnMemberLost(SessionId session, absl::string_view why, absl::Time now,
                    ClusterActions* actions);
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
  void ConfirmAddresses(absl::Time now, ClusterActions* actions);
  void StartJobs(absl::Time now, ClusterActions* actions);
  void Place(Job* job, const MemberPool& free, std::string secret,
             absl::Time now, ClusterActions* actions);
  void UpdateQueue(absl::Time now, ClusterActions* actions);
  // The job this member is engaged for, if it is known; else null.
  Job* JobOf(SessionId session);

  const Options options_;
  Membership membership_;
  AddressChecks address_checks_;
  ClosedStreams closed_streams_;
  JobQueue queue_;
  JobPlacement placement_;
  JobRecords jobs_;
  std::map<SessionId, Engagement> engaged_;
  uint64_t lost_count_ = 0;
  bool shut_down_ = false;
  SchedulerMessage shutdown_;  // what newcomers are told then
  std::set<uint64_t> told_;    // it, by incarnation
};

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_CORE_CLUSTER_CLUSTER_CORE_H_
