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
#include "worker/exchange/parameter_exchange.h"
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
  void SendRefused(const std::vector<std::string>& problems,
                   const std::vector<FoundCheckpoint>& found) const;
  void SendProgress(const WorkerProgress& progress) const;
  // The chief's of a job without ps, in place of the reports of ps.
  void SendLeftOut(const ParameterExchange::LeftOut& left_out) const;
  void SendEvaluation(const Evaluation& evaluation) const;
  // A checkpoint that was to be evaluated was not, and why.
  void SendEvaluationFailed(const std::string& checkpoint,
                            const std::string& why) const;
  // The work that the run does beside its steps, in words; empty: none any
  // more.
  void SendActivity(const std::string& activity) const;
  // A checkpoint is whole, and others were deleted for it.
  void SendCheckpoint(const CheckpointInfo& whole,
                      const std::vector<std::string>& deleted) const;
  // The regime was changed, or was to be.
  void SendRegime(const RegimeTransition& transition) const;
  // A checkpoint was not made, and why.
  void SendCheckpointTrouble(const std::string& why) const;
  // A checkpoint that was asked for was not made, and why.
  void SendCheckpointRefused(const std::string& why) const;
  void SendUnreachable(const Member& peer, absl::Duration out_of_reach,
                       const absl::Status& error) const;
  // `released`: nothing of the job is left here.
  // `why`: of a success, why the job has ended early; empty: it has not.
  void SendDone(const absl::Status& status, bool released,
                const std::string& why = "") const;

 private:
  const JobAssignment& assignment_;
  const std::function<void(DaemonMessage)> send_;
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_TRAINING_JOB_REPORTER_H_
