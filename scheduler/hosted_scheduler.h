#ifndef SYNCLINE_SCHEDULER_HOSTED_SCHEDULER_H_
#define SYNCLINE_SCHEDULER_HOSTED_SCHEDULER_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/daemon/daemon.h"
#include "scheduler/ctl/job_file.h"
#include "scheduler/service/scheduler.h"
#include "scheduler/single_job.h"

namespace syncline::scheduler {

// The scheduler of a process, be it syncline-scheduler or a chief: made from
// the process's flags, with the job of --job. Used from the main thread, in the
// order of the functions.
class HostedScheduler {
 public:
  // Before daemon->Listen(). `daemon` outlives this object, which outlives the
  // gRPC server. Errors: Scheduler::Create's. A bad job file is none: all its
  // problems are reported, and the cluster is told to end once it is there.
  static absl::StatusOr<std::unique_ptr<HostedScheduler>> Create(
      const DaemonOptions& options, Daemon* daemon);

  // For daemon->Listen().
  static std::vector<std::string> Services();
  HttpServer::Pages Pages();

  // After daemon->Listen(): says where it is, submits the job.
  void Start();
  // The job of --job is not over.
  bool busy() const;
  // After daemon->Leave(): ends the cluster if it is there for --job, then the
  // scheduler.
  void Drain(int exit_code, absl::Time deadline);

  // For --validate-only: checks the job file, if there is one.
  static absl::Status Validate(const DaemonOptions& options);

 private:
  HostedScheduler(std::unique_ptr<Scheduler> scheduler,
                  std::optional<absl::StatusOr<ctl::JobFile>> job_file,
                  std::optional<int> members, Daemon* daemon);

  Daemon* const daemon_;
  std::optional<absl::StatusOr<ctl::JobFile>> job_file_;
  const std::optional<int> members_;  // SingleJob's
  const std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<SingleJob> job_;
};

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_HOSTED_SCHEDULER_H_
