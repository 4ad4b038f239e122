#include "server/service/ps_commands.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/incarnation.h"
#include "common/base/status_macros.h"
#include "common/base/utf8.h"
#include "common/checkpoint/checkpoint_search.h"
#include "common/job/orphaned_job.h"
#include "common/system/job_logs.h"
#include "common/system/log.h"
#include "server/checkpoint/restore.h"

namespace syncline::ps {
namespace {

// The job cannot go on without the worker of this rank.
DaemonMessage Refusal(const std::string& job_id, uint32_t attempt,
                      uint32_t rank, const absl::Status& why) {
  DaemonMessage message;
  WorkerTakenOut* const answer = message.mutable_taken_out();
  answer->set_job_id(job_id);
  answer->set_attempt(attempt);
  answer->set_rank(rank);
  answer->set_refused(why.ToString());
  return message;
}

}  // namespace

PsCommands::PsCommands(PsServer* server, uint64_t incarnation,
                       std::function<void(DaemonMessage)> send,
                       std::string checkpoint_dir)
    : server_(server),
      incarnation_(incarnation),
      send_(std::move(send)),
      checkpoint_dir_(std::move(checkpoint_dir)),
      thread_("ps-commands", 1) {}

PsCommands::~PsCommands() { thread_.Stop(); }

void PsCommands::OnCommand(const SchedulerMessage& command) {
  bool queued = true;
  if (command.has_prepare()) {
    queued =
        thread_.TrySubmit([this, assignment = command.prepare().assignment()] {
          Prepare(assignment);
        });
  } else if (command.has_remove_worker()) {
    TakeWorkerOut(command.remove_worker());
  } else if (command.has_return_leases()) {
    const ReturnLeases& leases = command.return_leases();
    const absl::Status returned = server_->ReturnClocks(leases);
    LogWarning(returned.ok() ? "the chief makes the clocks of a lost worker"
                             : "clocks of a lost worker do not return")
        .Job(leases.job_id())
        .Field("rank", leases.rank())
        .Field("clocks", absl::StrJoin(leases.clocks(), ","))
        .Status(returned);
    // The job would wait for them for ever.
    if (!returned.ok()) {
      send_(
          Refusal(leases.job_id(), leases.attempt(), leases.rank(), returned));
    }
  } else if (command.has_stop()) {
    {
      MutexLock lock(&mu_);
      Stops& stops = stops_[command.stop().job_id()];
      ++stops.count;
      stops.reason = command.stop().reason();
    }
    queued = thread_.TrySubmit([this, stop = command.stop()] { Stop(stop); });
  }
  if (!queued) LogWarning("a command came after the end");
}

void PsCommands::TakeWorkerOut(const RemoveWorker& remove) {
  absl::StatusOr<std::optional<WorkerTakenOut>> removed =
      server_->TakeWorkerOut(remove);
  LogWarning(removed.ok() ? "a worker was lost, and the others go on"
                          : "a lost worker was not taken out")
      .Job(remove.job_id())
      .Field("rank", remove.rank())
      .Field("why", remove.reason())
      .Status(removed.status());
  if (removed.ok() && !removed->has_value()) return;
  if (!removed.ok()) {
    send_(Refusal(remove.job_id(), remove.attempt(), remove.rank(),
                  removed.status()));
    return;
  }
  DaemonMessage message;
  *message.mutable_taken_out() = *std::move(*removed);
  send_(std::move(message));
}

absl::Status PsCommands::CheckNotStopped(const std::string& job_id) {
  MutexLock lock(&mu_);
  const auto stops = stops_.find(job_id);
  if (stops == stops_.end()) return absl::OkStatus();
  std::string problem = "stopped while its shard was opened";
  // Else the scheduler has asked for it, and knows why.
  if (IsOfOrphanedJob(stops->second.reason)) {
    absl::StrAppend(&problem, ": ", stops->second.reason);
  }
  return absl::CancelledError(problem);
}

absl::Status PsCommands::Open(const JobAssignment& assignment) {
  for (const Participant& ps : assignment.ps()) {
    if (ps.member().incarnation() != incarnation_) continue;
    const auto go_on = [&] { return CheckNotStopped(assignment.job_id()); };
    SYNCLINE_RETURN_IF_ERROR(go_on());
    if (assignment.has_start_from()) {
      SendActivity(assignment,
                   absl::StrCat("reading the checkpoint in ",
                                Utf8Text(assignment.start_from().path())));
      SYNCLINE_ASSIGN_OR_RETURN(
          const ShardStarts starts,
          StartsFromCheckpoint(assignment, ps.rank(), go_on, checkpoint_dir_));
      return server_->RestoreJob(assignment, ps.rank(), starts, go_on);
    }
    return server_->OpenJob(assignment, ps.rank(), go_on);
  }
  return absl::FailedPreconditionError(
      absl::StrCat("this process (incarnation ", IncarnationText(incarnation_),
                   ") is not among the ps of the job"));
}

void PsCommands::SendActivity(const JobAssignment& assignment,
                              const std::string& activity) const {
  DaemonMessage message;
  WorkerReport* const report = message.mutable_report();
  report->set_job_id(assignment.job_id());
  report->set_attempt(assignment.attempt());
  report->set_activity(activity);
  send_(std::move(message));
}

void PsCommands::Prepare(const JobAssignment& assignment) {
  SetJobTrace(assignment.job_id(), assignment.trace_id());
  const absl::Status opened = Open(assignment);
  DaemonMessage message;
  message.mutable_prepared()->set_job_id(assignment.job_id());
  message.mutable_prepared()->set_attempt(assignment.attempt());
  if (assignment.has_start_from()) {
    for (FoundCheckpoint& found : FindInsteadOfOpened(
             assignment, checkpoint_dir_, opened,
             [&] { return CheckNotStopped(assignment.job_id()); })) {
      *message.mutable_prepared()->add_found() = std::move(found);
    }
  }
  if (!opened.ok()) {
    LogWarning("job not opened").Job(assignment.job_id()).Status(opened);
    message.mutable_prepared()->add_problems(std::string(opened.message()));
  }
  send_(std::move(message));
}

void PsCommands::Stop(const StopJob& stop) {
  {
    MutexLock lock(&mu_);
    if (--stops_[stop.job_id()].count == 0) stops_.erase(stop.job_id());
  }
  std::optional<PsReport> report =
      server_->CloseJob(stop.job_id(), stop.reason());
  if (report.has_value()) {
    DaemonMessage last;
    *last.mutable_ps_report() = *std::move(report);
    send_(std::move(last));
  }
  DaemonMessage message;
  message.mutable_done()->set_job_id(stop.job_id());
  message.mutable_done()->set_attempt(stop.attempt());
  message.mutable_done()->set_released(true);
  // A scheduler that comes back has not asked for it.
  if (IsOfOrphanedJob(stop.reason())) {
    message.mutable_done()->set_message(stop.reason());
  }
  send_(std::move(message));
}

}  // namespace syncline::ps
