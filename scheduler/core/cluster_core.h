#ifndef SYNCLINE_SCHEDULER_CORE_CLUSTER_CORE_H_
#define SYNCLINE_SCHEDULER_CORE_CLUSTER_CORE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/scheduler.pb.h"
#include "scheduler/core/address_checks.h"
#include "scheduler/core/closed_streams.h"
#include "scheduler/core/cluster_action.h"
#include "scheduler/core/job.h"
#include "scheduler/core/job_queue.h"
#include "scheduler/core/membership.h"

namespace syncline::scheduler {

// Every decision of the scheduler: who is a member, which job runs where, what
// is told to whom. Pure: events and `now` in, actions appended to *actions, to
// be carried out in that order. No thread, socket, disk or clock.
// Thread-compatible.
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
    // After its start, and after a loss, the cluster may still come together:
    // until then nobody overtakes a job that it is too small for.
    absl::Duration settle = absl::Seconds(15);
    // One is on its way: after the start, while the cluster may still come
    // together, a job that has something to evaluate waits for it.
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
  };
  // Of a member that works for a job, or is being freed from it.
  struct Engagement {
    std::string job_id;
    absl::Time release_by = absl::InfiniteFuture();  // StopJob was sent
  };

  explicit ClusterCore(Options options);

  // Takes over what an earlier scheduler knew; the first event. A job that was
  // running has failed. `unreadable` are ids that are not to be given again.
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
  // The job that was submitted with this key before; none: the key is empty or
  // was not seen. Errors: AlreadyExists: that was another job, with what
  // differs. `spec` has its defaults; of `model` size and checksum are
  // compared.
  absl::StatusOr<std::optional<std::string>> FindRepeated(
      const std::string& client_key, const JobSpec& spec,
      const Artifact& model) const;
  bool HasClientKey(const std::string& client_key) const {
    return by_client_key_.contains(client_key);
  }
  // Never given before.
  std::string NextJobId();
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
  // of the process with this incarnation.
  absl::Status CheckUpload(const std::string& job_id,
                           uint64_t incarnation) const;
  absl::Status AddArtifact(const std::string& job_id, const Artifact& artifact,
                           ClusterActions* actions);

  // Errors: NotFound.
  absl::StatusOr<const Job*> FindJob(const std::string& job_id) const;
  // Newest first.
  std::vector<const Job*> Jobs() const;
  // Without address and version of the scheduler, and without the members'
  // incarnations: it is for everybody. A member that is not confirmed has the
  // reason, in brackets, for a job.
  ClusterStatus Cluster(absl::Time now) const;
  const Membership& membership() const { return membership_; }
  size_t queue_length() const { return queue_.size(); }
  // Members that were told to exit, each once; 0 before Shutdown.
  int shut_down_count() const { return static_cast<int>(told_.size()); }
  size_t engaged_count() const { return engaged_.size(); }
  uint64_t lost_count() const { return lost_count_; }

 private:
  struct FreeMembers {
    std::vector<Job::Place> workers;
    std::vector<Job::Place> ps;
    std::vector<Job::Place> evaluators;
    Capacity capacity() const;
  };

  // The process of `request` is a member already, with another stream, and goes
  // on as that. False: it cannot; nothing has changed.
  bool Resume(const Membership::Entry& member, SessionId session,
              const Register& request, absl::Time now, ClusterActions* actions);
  void Welcome(SessionId session, const Register& request,
               ClusterActions* actions);
  void LoseExpired(absl::Time now, ClusterActions* actions);
  void Lose(SessionId session, absl::string_view why, absl::Time now,
            ClusterActions* actions);
  void OnJobDone(SessionId session, const JobDone& done, absl::Time now,
                 ClusterActions* actions);
  void Release(SessionId session, absl::Time now, ClusterActions* actions);
  // Sends StopJob to whoever still works for a job that is over.
  // A failure that the same work has had before is no matter of luck.
  void NoteRepeatedFault(Job* job);
  void Settle(Job* job, absl::Time now, ClusterActions* actions);
  void SendStop(SessionId session, const std::string& job_id,
                absl::string_view reason, absl::Time now,
                ClusterActions* actions);
  FreeMembers Free() const;
  void ConfirmAddresses(absl::Time now, ClusterActions* actions);
  void StartJobs(absl::Time now, ClusterActions* actions);
  bool MayComeTogether(const Job& too_large, absl::Time now);
  bool AwaitsEvaluator(const Job& job, absl::Time now) const;
  void Place(Job* job, const FreeMembers& free, absl::Time now,
             ClusterActions* actions);
  void UpdateQueue(const Capacity& free, absl::Time now,
                   ClusterActions* actions);
  // Of all confirmed members, whether they work or not.
  Capacity Total() const;
  void ExpireJobs(absl::Time now, ClusterActions* actions);
  // Takes it into jobs_.
  void AddJob(uint64_t number, StoredJob stored);
  Job* MutableJob(const std::string& job_id);
  // The job this member is engaged for, if it is known; else null.
  Job* JobOf(SessionId session);

  const Options options_;
  Membership membership_;
  AddressChecks address_checks_;
  ClosedStreams closed_streams_;
  JobQueue queue_;
  std::map<uint64_t, std::unique_ptr<Job>> jobs_;  // by number: "j-0001" is 1
  std::map<std::string, uint64_t> by_client_key_;  // numbers of jobs
  std::map<SessionId, Engagement> engaged_;
  absl::Time started_at_ = absl::InfinitePast();
  absl::Time settled_at_ = absl::InfinitePast();
  absl::flat_hash_map<std::string, absl::Time> too_large_since_;
  uint64_t next_job_ = 1;
  uint64_t lost_count_ = 0;
  absl::Time expire_at_ = absl::InfinitePast();
  bool shut_down_ = false;
  SchedulerMessage shutdown_;  // what newcomers are told then
  std::set<uint64_t> told_;    // it, by incarnation
};

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_CORE_CLUSTER_CORE_H_
