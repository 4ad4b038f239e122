#ifndef SYNCLINE_COMMON_CLUSTER_SCHEDULER_SESSION_H_
#define SYNCLINE_COMMON_CLUSTER_SCHEDULER_SESSION_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/cancellation.h"
#include "proto/scheduler.pb.h"

namespace syncline {

// A daemon's one stream to the scheduler: registers, heartbeats, delivers
// commands in order, sends events, and reconnects with backoff when the stream
// breaks. Thread-safe.
class SchedulerSession {
 public:
  struct Callbacks {
    // One at a time, from one thread of the session; must not block for long.
    // A `stop` for the running job comes by itself when the scheduler has been
    // out of reach for `orphan_timeout`.
    std::function<void(const SchedulerMessage&)> on_command;
    // After each successful registration.
    std::function<void(const Registered&)> on_registered;
    // A session that was established is lost, for 2 s by now; the next
    // on_registered ends that.
    std::function<void(const absl::Status& why)> on_lost = nullptr;
    // Registration was refused for good (another process holds the task, wrong
    // version). Or, Unavailable: the scheduler was not found within
    // `connect_timeout`; or it has been out of reach for `orphan_timeout` and
    // the cluster ends with it. The session is closed then; the process should
    // exit.
    std::function<void(const absl::Status&)> on_rejected;
  };
  struct Options {
    std::string scheduler_address;
    Member self;
    bool auto_index = false;
    // The first registration must succeed within this time.
    absl::Duration connect_timeout = absl::Minutes(5);
    // AlreadyExists is retried this long: a predecessor's lease may still run.
    absl::Duration task_taken_timeout = absl::Seconds(8);
    // SessionCore's.
    absl::Duration orphan_timeout = absl::Minutes(10);
    absl::Duration one_job_orphan_timeout = absl::Seconds(60);
  };
  static std::unique_ptr<SchedulerSession> Start(Options options,
                                                 Callbacks callbacks);
  // Closes the stream and joins; no callback runs after it.
  virtual ~SchedulerSession() = default;

  // Queued and sent in order; dropped while disconnected, except `done`,
  // `prepared` and `report`. Of these the running job's last 64 are sent again
  // after each registration, of reports without an evaluation the newest:
  // what had left when the connection broke may not have arrived.
  virtual void Send(DaemonMessage message) = 0;
  // The job to name when registering again; empty for none.
  virtual void SetRunningJob(std::string job_id) = 0;
};

// Transfers whole files to and from a scheduler, in chunks, with checksums; of
// any size, never held in memory. Blocking, until `deadline`; `cancellation`,
// which may be null, ends it early. Errors: as the RPCs; Cancelled; DataLoss:
// checksum mismatch; ResourceExhausted: local disk full.
// `download` names job and artifact, and shows attempt and secret of the job.
absl::Status FetchArtifact(const std::string& scheduler_address,
                           const DownloadRequest& download,
                           const std::string& to_file, absl::Time deadline,
                           Cancellation* cancellation = nullptr);
// `upload` names job and artifact, and says by incarnation and secret which
// stream it belongs to.
absl::Status UploadArtifact(const std::string& scheduler_address,
                            const UploadBegin& upload,
                            const std::string& from_file, absl::Time deadline,
                            Cancellation* cancellation = nullptr);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_CLUSTER_SCHEDULER_SESSION_H_
