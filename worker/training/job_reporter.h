#ifndef SYNCLINE_WORKER_TRAINING_JOB_REPORTER_H_
#define SYNCLINE_WORKER_TRAINING_JOB_REPORTER_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/job.pb.h"
#include "proto/scheduler.pb.h"
#include "worker/job/prepared_job.h"

namespace syncline::worker {

// Tells the scheduler of one run of a job. Thread-safe; no call blocks.
class JobReporter {
 public:
  // `assignment` outlives this. `send` is thread-safe and does not block.
  JobReporter(const JobAssignment& assignment,
              std::function<void(DaemonMessage)> send);

  // The job is ready to run.
  void SendPrepared(const PreparedJob& job) const;
  // The job is refused. REQUIRES: `problems` is not empty.
  void SendRefused(const std::vector<std::string>& problems) const;
  void SendProgress(const WorkerProgress& progress) const;
  void SendEvaluation(const Evaluation& evaluation) const;
  // The work that the run does beside its steps, in words; empty: none any
  // more.
  void SendActivity(const std::string& activity) const;
  void SendUnreachable(const Member& peer, absl::Duration out_of_reach,
                       const absl::Status& error) const;
  // `released`: nothing of the job is left here.
  void SendDone(const absl::Status& status, bool released) const;

 private:
  const JobAssignment& assignment_;
  const std::function<void(DaemonMessage)> send_;
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_TRAINING_JOB_REPORTER_H_
