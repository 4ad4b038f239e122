#ifndef SYNCLINE_SCHEDULER_SERVICE_CONTROL_LOOP_H_
#define SYNCLINE_SCHEDULER_SERVICE_CONTROL_LOOP_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/base/slewed_clock.h"
#include "common/system/periodic_task.h"
#include "common/system/thread_pool.h"
#include "scheduler/core/cluster/cluster_core.h"
#include "scheduler/service/address_confirmer.h"
#include "scheduler/service/artifact_store.h"
#include "scheduler/service/checkpoint_waiters.h"
#include "scheduler/service/job_intake.h"
#include "scheduler/service/job_watchers.h"
#include "scheduler/service/metrics.h"
#include "scheduler/service/record_writer.h"
#include "scheduler/service/state_backup.h"
#include "scheduler/service/state_store.h"

namespace syncline::scheduler {

// The shell around ClusterCore. Events are handled one after the other on one
// thread, and the core's actions are carried out there in order, so a record is
// on disk before a member or a watcher is told of it. Any thread may read the
// core, under its lock, which is never held across I/O. Thread-safe.
class ControlLoop {
 public:
  // A daemon's stream. Calls come from the loop's thread and must not block.
  class Session {
   public:
    virtual ~Session() = default;
    virtual void Send(const SchedulerMessage& message) = 0;
    virtual void End(const absl::Status& status) = 0;
  };
  using Watcher = JobWatcher;

  // A call that takes a file in. EndIfIdle comes from the loop's thread and
  // must not block.
  class Transfer {
   public:
    virtual ~Transfer() = default;
    // Ends it if it has waited for its caller since before `since`.
    virtual void EndIfIdle(absl::Time since) = 0;
  };
  struct Options {
    ClusterCore::Options core;
    // A stream that does not register, and a transfer of which nothing comes.
    absl::Duration idle_limit = absl::Seconds(30);
    // Asks members at their addresses, where the core wants that. It is stopped
    // or destroyed after Stop() and before the loop is destroyed. May be null.
    AddressConfirmer* confirmer = nullptr;
    // OK while the state is this scheduler's; may be null. After an error
    // nothing is written or sent any more, and `on_superseded`, which may be
    // null, is told once. Both on the loop's thread.
    std::function<absl::Status()> check_owner = nullptr;
    std::function<void(const absl::Status& why)> on_superseded = nullptr;
  };

  // The stores outlive it. `restored` are the records of the state store.
  ControlLoop(const Options& options, StateStore::Loaded restored,
              StateStore* state, ArtifactStore* artifacts,
              SchedulerMetrics* metrics);
  ~ControlLoop();  // Stop()

  // Handles what is queued and joins. Idempotent.
  void Stop();

  // Daemons. `next` runs when the message has been handled.
  SessionId AddSession(std::shared_ptr<Session> session);
  void OnMessage(SessionId id, DaemonMessage message,
                 std::function<void()> next);
  void OnClosed(SessionId id);  // idempotent
  // As ClusterCore. False: nothing has happened, because there is no room in
  // the queue, or the loop has stopped.
  bool OnRevoked(SessionId id, const absl::Status& why);
  // The certificate that the session began with has ended: a warning in the
  // log, and no more (MemberCertificates::OnEnded says why).
  void OnCertificateEnded(SessionId id, absl::Time end) const;
  // Until it is destroyed.
  void AddTransfer(std::weak_ptr<Transfer> transfer);
  absl::Time Now() const { return clock_.Now(); }
  absl::Duration idle_limit() const { return idle_limit_; }

  // Users. `done` runs once, on the loop's thread, or at once if the loop has
  // stopped.
  using Accepted = std::function<void(absl::StatusOr<std::string>)>;
  struct Submission {
    std::string job_id;
    // The job was there already, from an earlier submission with the same key.
    bool repeated = false;
  };
  using Submitted = std::function<void(absl::StatusOr<Submission>)>;
  // `model` is whole; blocks on the disk, so not from a reaction.
  // AlreadyExists: the client's key is that of a job that is another one.
  // `weights` likewise, of start.weights; null: there are none.
  void Submit(CheckedJob job, FileChunkWriter* model, FileChunkWriter* weights,
              Submitted done);
  // A submission has ended, also before it came to Submit.
  void CountSubmit(bool accepted) { metrics_->CountSubmit(accepted); }
  void Cancel(const std::string& job_id, const std::string& reason,
              std::function<void(absl::StatusOr<JobStatus>)> done);
  void Profile(const ProfileRequest& request, Accepted done);
  // `done` runs when the regime has changed or has not.
  using RegimeChanged = std::function<void(absl::StatusOr<RegimeTransition>)>;
  void ChangeRegime(const ChangeRegimeRequest& request, RegimeChanged done);
  // `done` runs once the checkpoint is whole, or is not to be had.
  void TakeCheckpoint(const std::string& job_id, CheckpointWaiters::Done done);
  // As Jobs.Scale; answered once it is on disk.
  void Scale(const ScaleRequest& request,
             std::function<void(absl::StatusOr<JobStatus>)> done);
  // As Jobs.SetMemberUse. What was said is on disk before it counts.
  void SetMemberUse(
      const SetMemberUseRequest& request,
      std::function<void(absl::StatusOr<SetMemberUseResponse>)> done);
  // ResourceExhausted: the job's record could not be written; a repeat helps
  // once it can.
  void AddArtifact(const std::string& job_id, const Artifact& artifact,
                   std::function<void(absl::Status)> done);
  void SetQuotas(TenantQuotas quotas);
  void Shutdown(int exit_code, const std::string& reason);
  // The state of one moment. Links the files of jobs first, on the caller's
  // thread, which may take seconds.
  void Backup(
      std::function<void(absl::StatusOr<std::unique_ptr<StateBackup>>)> done);

  // The status at once, then as Watcher says. Errors: NotFound.
  absl::Status Watch(const std::string& job_id,
                     std::shared_ptr<Watcher> watcher);
  void Unwatch(const std::string& job_id, const Watcher* watcher);

  // Ends all streams and watches and refuses new ones. Running jobs stay as
  // they are, for the next scheduler to mark.
  void Drain();
  bool draining() const { return draining_; }
  // A known key is accepted even where the queue is full.
  absl::Status CheckAccepting(const std::string& client_key) const;
  // Errors: Unavailable: draining, or the loop's thread has been held up for
  // long; those of the state store: a record could not be written, and has not
  // been since.
  absl::Status Healthy() const;
  // As ClusterCore says; Unavailable if the secret is not that of the stream
  // which this process has now, and may be after its next registration.
  absl::Status CheckUpload(const UploadBegin& begin) const;
  absl::Status CheckFetch(const DownloadRequest& request) const;  // the core's
  absl::StatusOr<JobStatus> Get(const std::string& job_id) const;
  // JobStatus.tenant; none: no such job.
  std::optional<std::string> TenantOf(const std::string& job_id) const;
  absl::StatusOr<JobTableStatus> GetTables(const std::string& job_id) const;
  // As ClusterCore::Events.
  absl::StatusOr<ClusterCore::EventList> Events(const std::string& job_id,
                                                uint64_t from) const;
  // Calls `read` with the core locked; it must be short.
  void Read(const std::function<void(const ClusterCore&, absl::Time now)>& read)
      const;
  // False if there are streams of daemons still at `deadline`, or fewer than
  // `told` members have been told to exit.
  bool AwaitNoSessions(absl::Time deadline, int told = 0);

 private:
  using Event =
      std::function<void(ClusterCore*, absl::Time now, ClusterActions*)>;

  // Runs `event` and carries out its actions, then runs `after`, unlocked. Of a
  // scheduler that was replaced `after` runs alone: what it says is by then the
  // outcome of nothing done. False: the loop has stopped and neither runs.
  bool Post(Event event, std::function<void()> after = nullptr);
  void Handle(const Event& event, absl::Time now);
  // False: a newer scheduler has the state.
  bool OwnsState();
  void Tick();
  void Execute(const ClusterActions& actions);
  void Persist(const std::string& job_id, bool durable);
  absl::StatusOr<JobRecord> Record(const std::string& job_id) const;
  void Notify(const std::string& job_id);
  void NotifyChanged();
  void EndIdle();
  void Forget(const DeleteJob& job);
  // Answers who waits for a change of the job's regime, if it is decided.
  void AnswerRegimeWaiter(const std::string& job_id);
  void EndRegimeWaiters();
  void OnTransition(const std::string& job_id);
  absl::StatusOr<SetMemberUseResponse> UseMember(
      const SetMemberUseRequest& request);
  absl::StatusOr<Submission> Enqueue(const std::string& job_id,
                                     const CheckedJob& job,
                                     absl::Span<const Artifact> files);
  absl::StatusOr<std::optional<std::string>> FindRepeated(
      const CheckedJob& job, absl::Span<const Artifact> files) const;
  std::shared_ptr<Session> FindSession(SessionId id) const;
  // Hands a command to its stream; tells it its secret when it has registered.
  void SendTo(const SendCommand& send);
  // "ps 1 at HOST:PORT (incarnation 0x..)"; empty if it is no member.
  std::string MemberOf(SessionId id) const;

  // Asks, and hands the answer to the core.
  void Confirm(const ConfirmAddress& confirm);
  // Hands on the answers that found the queue full.
  void HandleLateAnswers();

  struct Stream {
    std::shared_ptr<Session> session;
    absl::Time opened;
    std::string secret;  // Registered.session_secret
  };

  const absl::Duration idle_limit_;
  const std::function<absl::Status()> check_owner_;
  const std::function<void(const absl::Status&)> on_superseded_;
  AddressConfirmer* const confirmer_;
  mutable SlewedClock clock_;
  StateStore* const state_;
  ArtifactStore* const artifacts_;
  SchedulerMetrics* const metrics_;
  std::atomic<bool> draining_{false};
  std::atomic<bool> tick_queued_{false};
  // For the loop's thread alone.
  RecordWriter records_;  // but for Check()
  bool superseded_ = false;
  JobWatchers watchers_;
  std::map<std::string, RegimeChanged> regime_waiters_;  // by job
  CheckpointWaiters checkpoint_waiters_;

  mutable Mutex mu_;
  absl::Time ticked_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();
  // Of Confirm; at most one for each member.
  std::vector<Event> late_answers_ ABSL_GUARDED_BY(mu_);
  CondVar sessions_changed_;
  ClusterCore core_ ABSL_GUARDED_BY(mu_);
  std::map<SessionId, Stream> sessions_ ABSL_GUARDED_BY(mu_);
  std::vector<std::weak_ptr<Transfer>> transfers_ ABSL_GUARDED_BY(mu_);
  SessionId next_session_ ABSL_GUARDED_BY(mu_) = 1;

  ThreadPool thread_;  // one
  std::optional<PeriodicTask> ticker_;
};

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_SERVICE_CONTROL_LOOP_H_
