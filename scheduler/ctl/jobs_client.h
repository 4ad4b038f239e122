#ifndef SYNCLINE_SCHEDULER_CTL_JOBS_CLIENT_H_
#define SYNCLINE_SCHEDULER_CTL_JOBS_CLIENT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/job.pb.h"
#include "proto/scheduler.grpc.pb.h"
#include "scheduler/ctl/interrupt_signals.h"

namespace syncline::ctl {

// A user's side of the scheduler: blocking calls that all end. Errors of every
// call: the RPC's own, and Unavailable, naming the scheduler's address, where
// it cannot be reached. Thread-compatible.
class JobsClient {
 public:
  // Called as a file moves; false ends the transfer with Cancelled.
  using Transferred =
      std::function<bool(uint64_t done_bytes, uint64_t total_bytes)>;

  explicit JobsClient(const std::string& scheduler_address);

  const std::string& address() const { return address_; }

  // The job, once it is queued and durable. Where the answer is lost it asks
  // again, with the same `client_key`, which makes that one submission; for
  // some seconds. An empty key: one attempt. `weights_file`: that of
  // start.weights; empty: none. Errors also: AlreadyExists: the key is that of
  // another job.
  absl::StatusOr<SubmitResponse> Submit(const JobSpec& spec,
                                        const std::string& model_file,
                                        const std::string& client_key,
                                        const Transferred& transferred,
                                        const std::string& trace_id = "",
                                        const std::string& weights_file = "");
  absl::StatusOr<JobStatus> Get(const std::string& job_id);
  // As many as request.limit says (0: 100), page after page; jobs that come
  // meanwhile are not among them. Without next_page_token.
  absl::StatusOr<ListResponse> List(ListRequest request);
  absl::StatusOr<JobStatus> Cancel(const std::string& job_id,
                                   const std::string& reason);
  absl::StatusOr<ClusterStatus> GetCluster();
  absl::StatusOr<JobTableStatus> GetTables(const std::string& job_id);

  // Calls `on_event` with what has happened to a job, the oldest first; with
  // `follow` also with what happens, until the job has ended. `interrupts`,
  // here and below, outlives the call. Errors also: Cancelled: Ctrl-C.
  absl::Status Events(const std::string& job_id, bool follow,
                      const std::function<void(const JobEvent&)>& on_event,
                      InterruptSignals* interrupts);
  // Has the job make a checkpoint; returns once that is whole. Errors also:
  // FailedPrecondition: there is none, or it took longer than `timeout`.
  absl::StatusOr<CheckpointInfo> TakeCheckpoint(const std::string& job_id,
                                                absl::Duration timeout);

  // Whether a member gets jobs from here on, and leaves the one that it has.
  // Errors also: NotFound: there is no such member; FailedPrecondition: its job
  // cannot leave it.
  absl::StatusOr<JobStatus> Scale(const ScaleRequest& request);
  absl::StatusOr<SetMemberUseResponse> SetMemberUse(
      const SetMemberUseRequest& request);

  // The name of the artifact that the worker will store.
  absl::StatusOr<std::string> Profile(const ProfileRequest& request);
  // Asks a running job for another regime; waits until the change is made, at
  // most `timeout`. Errors also: FailedPrecondition: it was not made, or
  // another change is under way; InvalidArgument: the job cannot make it;
  // DeadlineExceeded: it may still be made.
  absl::StatusOr<RegimeTransition> ChangeRegime(
      const ChangeRegimeRequest& request, absl::Duration timeout);

  // Writes the artifact to `to_file`, complete and with the right checksum, or
  // not at all. `size_bytes` is what JobStatus says.
  absl::Status Download(const std::string& job_id, const Artifact& artifact,
                        const std::string& to_file,
                        const Transferred& transferred);

  // Writes an archive of the scheduler's state to `to_file`, complete or not at
  // all. The total that `transferred` is told is 0: it is not known.
  absl::Status BackupState(const std::string& to_file,
                           const Transferred& transferred);
  // Calls `on_lines` with what the members of a job log, until there is no
  // more, or until it returns false, which is no error. Errors also: Cancelled:
  // Ctrl-C.
  absl::Status Logs(const LogsRequest& request,
                    const std::function<bool(const LogLines&)>& on_lines,
                    InterruptSignals* interrupts);

  // Follows the job to its final state and returns that. `on_status` sees every
  // change, `on_idle` runs at least five times a second; the first status
  // that is not OK ends the watch and is returned. Rides over a scheduler that
  // is out of reach for up to `reconnect_for`, or that says nothing for up to
  // `silence_max`, then: Unavailable; or Aborted: it had said that it stops.
  // `on_silence` is told, a few times a second, how long nothing has come, from
  // `silence_told` on.
  struct WatchOptions {
    std::function<void(const JobStatus&)> on_status;
    std::function<absl::Status()> on_idle;
    std::function<void(absl::Duration)> on_silence = nullptr;
    absl::Duration reconnect_for = absl::Seconds(9);
    absl::Duration silence_told = absl::Seconds(5);
    absl::Duration silence_max = absl::Seconds(20);
  };
  absl::StatusOr<JobStatus> Watch(const std::string& job_id,
                                  const WatchOptions& options,
                                  InterruptSignals* interrupts);

 private:
  absl::StatusOr<SubmitResponse> SubmitOnce(const SubmitBegin& begin,
                                            const std::string& model_file,
                                            const std::string& weights_file,
                                            const Transferred& transferred);
  // One stream. OK: it delivered a final state. *heard_at: the last message.
  absl::Status FollowOnce(const std::string& job_id,
                          const WatchOptions& options, JobStatus* latest,
                          absl::Time* heard_at);

  const std::string address_;
  const std::unique_ptr<Jobs::Stub> stub_;
};

}  // namespace syncline::ctl

#endif  // SYNCLINE_SCHEDULER_CTL_JOBS_CLIENT_H_
