#ifndef SYNCLINE_SERVER_SERVICE_PS_COMMANDS_H_
#define SYNCLINE_SERVER_SERVICE_PS_COMMANDS_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "common/base/mutex.h"
#include "common/system/thread_pool.h"
#include "proto/scheduler.pb.h"
#include "server/service/ps_server.h"

namespace syncline::ps {

// Carries out the scheduler's commands on a ps, one after the other, on a
// thread of its own: opening and closing a job takes time. A StopJob ends the
// opening of its job that is under way or waits before it, so that the stop is
// answered soon. Thread-safe.
//
//   PrepareJob -> OpenJob, or WorkerReport.activity, and RestoreJob from
//                 JobAssignment.start_from
//                          -> JobPrepared, with the problem if there is one
//   StopJob    -> CloseJob -> JobDone{released}, also for a job it has not;
//                 before it the last PsReport, which stays after the job
//   RemoveWorker -> TakeWorkerOut, at once; what it answers
//   ReturnLeases -> ReturnClocks, at once
class PsCommands {
 public:
  // Its shard of a job is that of the participant with `incarnation`. `server`
  // outlives this object. `send` is thread-safe and does not block.
  // `checkpoint_dir` is PsServer's.
  PsCommands(PsServer* server, uint64_t incarnation,
             std::function<void(DaemonMessage)> send,
             std::string checkpoint_dir = "");
  ~PsCommands();  // finishes what was ordered

  // Other commands are ignored. Does not block.
  void OnCommand(const SchedulerMessage& command);

 private:
  // Errors: Cancelled: a stop of the job waits for the thread.
  absl::Status CheckNotStopped(const std::string& job_id);
  absl::Status Open(const JobAssignment& assignment);
  // Says to people, by the scheduler, what this ps does while others wait for
  // it.
  void SendActivity(const JobAssignment& assignment,
                    const std::string& activity) const;
  void Prepare(const JobAssignment& assignment);
  void Stop(const StopJob& stop);
  void TakeWorkerOut(const RemoveWorker& remove);

  PsServer* const server_;
  const uint64_t incarnation_;
  const std::function<void(DaemonMessage)> send_;
  const std::string checkpoint_dir_;
  Mutex mu_;
  // Stops that have come and are not carried out yet, by job.
  struct Stops {
    int count = 0;
    std::string reason;  // of the last
  };
  absl::flat_hash_map<std::string, Stops> stops_ ABSL_GUARDED_BY(mu_);
  ThreadPool thread_;  // last: it uses the rest
};

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_SERVICE_PS_COMMANDS_H_
