#include "scheduler/hosted_scheduler.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "common/base/exit_codes.h"
#include "common/base/status_macros.h"
#include "common/job/job_spec_validator.h"
#include "common/system/log.h"

namespace syncline::scheduler {
namespace {

// Several heartbeats fit into a lease, so a single late one loses no member.
constexpr double kHeartbeatsPerLease = 5;

// Members that have to come to be told that the cluster ends: those of
// TF_CONFIG. A scheduler task is none; a task that hosts the scheduler is one.
// A process that is alone ends as soon as its worker or its ps is told, and the
// other one may never come.
std::optional<int> MembersToTell(const DaemonOptions& options) {
  if (options.alone) return 0;
  const bool only_schedules = options.kind == DaemonKind::kScheduler;
  const int members = options.cluster_tasks - (only_schedules ? 1 : 0);
  return members > 0 ? std::optional<int>(members) : std::nullopt;
}

// Errors: LoadJobFile's; InvalidArgument: a job for more members than a process
// has that is alone.
absl::StatusOr<ctl::JobFile> LoadJob(const DaemonOptions& options) {
  SYNCLINE_ASSIGN_OR_RETURN(ctl::JobFile job,
                            ctl::LoadJobFile(options.job_file));
  const ResourcesSpec& resources = job.spec.resources();
  if (!options.alone || (resources.workers() <= 1 && resources.ps() <= 1)) {
    return job;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      options.job_file, ": resources: the job takes ",
      std::max(1u, resources.workers()), " workers and ",
      WithDefaults(job.spec).resources().ps(),
      " ps, but this process is alone: it has one of each. Set both to 1, or "
      "start a cluster (TF_CONFIG, or daemons with --scheduler)"));
}

}  // namespace

absl::Status HostedScheduler::Validate(const DaemonOptions& options) {
  if (options.job_file.empty()) return absl::OkStatus();
  return LoadJob(options).status();
}

absl::StatusOr<std::unique_ptr<HostedScheduler>> HostedScheduler::Create(
    const DaemonOptions& options, Daemon* daemon) {
  std::optional<absl::StatusOr<ctl::JobFile>> job_file;
  if (!options.job_file.empty()) {
    job_file = LoadJob(options);
    // No other daemon will come to be told.
    if (!job_file->ok() && options.alone) return job_file->status();
    if (!job_file->ok()) daemon->Report(job_file->status());
    for (const std::string& note :
         job_file->ok() ? (*job_file)->notes : std::vector<std::string>()) {
      LogWarning("the job of --job").Field("note", note);
    }
  }
  Scheduler::Options scheduler_options;
  scheduler_options.state_dir = options.state_dir;
  scheduler_options.lease = options.lease;
  scheduler_options.grow_pause = options.grow_pause;
  scheduler_options.heartbeat = options.lease / kHeartbeatsPerLease;
  scheduler_options.prepare_timeout = options.prepare_timeout;
  scheduler_options.keep = options.keep;
  scheduler_options.expects_evaluator = options.cluster_has_evaluator;
  scheduler_options.single_job = job_file.has_value();
  scheduler_options.quota_file = options.quota_file;
  scheduler_options.tenant_checkpoints = options.tenant_checkpoints;
  scheduler_options.metrics = daemon->metrics();
  scheduler_options.on_superseded = [daemon](const absl::Status& why) {
    daemon->Report(why);
    // The database is not closed: that would delete files, which may be those
    // of the newer scheduler by now.
    std::_Exit(kExitFailed);
  };
  if (options.kind != DaemonKind::kScheduler && !options.alone) {
    LogWarning(
        "this process is a member and hosts the scheduler: if it ends, "
        "the scheduler ends with it, and jobs that it trains fail or go "
        "back to their last checkpoint. A scheduler of its own "
        "(syncline-scheduler, or a scheduler task in TF_CONFIG) outlives "
        "its members, and jobs go on while it is restarted")
        .Field("docs", "docs/operations.md");
  }
  SYNCLINE_ASSIGN_OR_RETURN(auto scheduler,
                            Scheduler::Create(scheduler_options));
  scheduler->RegisterServices(daemon->builder());
  daemon->AddReadiness([s = scheduler.get()] { return s->Ready(); });
  return absl::WrapUnique(new HostedScheduler(std::move(scheduler),
                                              std::move(job_file),
                                              MembersToTell(options), daemon));
}

HostedScheduler::HostedScheduler(
    std::unique_ptr<Scheduler> scheduler,
    std::optional<absl::StatusOr<ctl::JobFile>> job_file,
    std::optional<int> members, Daemon* daemon)
    : daemon_(daemon),
      job_file_(std::move(job_file)),
      members_(members),
      scheduler_(std::move(scheduler)) {}

std::vector<std::string> HostedScheduler::Services() {
  return {"syncline.Jobs", "syncline.Daemons"};
}

HttpServer::Pages HostedScheduler::Pages() { return scheduler_->Pages(); }

void HostedScheduler::Start() {
  scheduler_->SetAddress(daemon_->address(), daemon_->http_address());
  if (!job_file_.has_value()) return;
  job_ = std::make_unique<SingleJob>(
      scheduler_.get(), *std::move(job_file_), members_, [this](int exit_code) {
        daemon_->RequestExit(exit_code, "the job of --job is over");
      });
}

bool HostedScheduler::busy() const {
  return job_ != nullptr && job_->running();
}

void HostedScheduler::Drain(int exit_code, absl::Time deadline) {
  if (job_ != nullptr) job_->Abandon(exit_code);
  job_.reset();
  scheduler_->Drain(deadline);
}

}  // namespace syncline::scheduler
