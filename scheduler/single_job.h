#ifndef SYNCLINE_SCHEDULER_SINGLE_JOB_H_
#define SYNCLINE_SCHEDULER_SINGLE_JOB_H_

#include <functional>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/system/thread_pool.h"
#include "scheduler/ctl/job_file.h"
#include "scheduler/service/scheduler.h"

namespace syncline::scheduler {

// The job of --job: submits it, follows it in the log, then ends every daemon
// of the cluster with the job's exit code. Thread-safe.
//
// A host that starts again with the same state finds the job of before, by a
// key that follows from the content of job file and model: one that is over
// ends the cluster with its code and does not run again, but for one that was
// worth a retry (138), as after a restart of the host itself.
class SingleJob {
 public:
  // `scheduler` outlives this object. `done` is called once, from a thread of
  // this object, after the daemons were told: the process should end with that
  // code.
  //   job      if it is bad, or not taken, the cluster ends with exit code 1,
  //            once its members have come to be told, or after some seconds
  //   members  how many have to come to be told, where the cluster ends before
  //            any of them has been needed; none: not known
  SingleJob(Scheduler* scheduler, absl::StatusOr<ctl::JobFile> job,
            std::optional<int> members,
            std::function<void(int exit_code)> done);
  // Ends the cluster with `exit_code`, also if the job is not over yet.
  void Abandon(int exit_code) ABSL_LOCKS_EXCLUDED(mu_);
  ~SingleJob();  // waits for the daemons to end, some seconds at most

  bool running() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // The state of the submission.
  enum class Found { kNothing, kRuns, kWasOver };
  void Run();
  // The exit code of the job, or that of Abandon.
  int SubmitAndFollow();
  absl::StatusOr<std::string> Submit();
  // The status of a job that was there already. Waits until there is one or
  // Abandon is called. Errors: those of WaitFor; Cancelled: abandoned.
  absl::StatusOr<JobStatus> AwaitStatus(const std::string& job_id);
  // Tells all members to end.
  void EndCluster(int exit_code);
  int Follow(const std::string& job_id);
  bool Abandoned(int* exit_code) const ABSL_LOCKS_EXCLUDED(mu_);

  Scheduler* const scheduler_;
  const absl::StatusOr<ctl::JobFile> job_;
  const std::optional<int> members_;
  const std::function<void(int)> done_;
  mutable Mutex mu_;
  bool running_ ABSL_GUARDED_BY(mu_) = true;
  int abandoned_with_ ABSL_GUARDED_BY(mu_) = -1;  // negative: it was not
  Found found_ = Found::kNothing;                 // thread_ alone
  bool taken_up_ = false;  // a job that an earlier process submitted goes on
  ThreadPool thread_;      // last: it uses the rest
};

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_SINGLE_JOB_H_
