// syncline-worker: one worker, chief or evaluator. It hosts the scheduler where
// TF_CONFIG makes it so, and where it is alone a ps too; each of them joins the
// cluster like any other member, over loopback.

#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "common/base/status_macros.h"
#include "common/daemon/daemon.h"
#include "kernels/threads.h"
#include "scheduler/hosted_scheduler.h"
#include "server/service/ps_member.h"
#include "worker/training/worker.h"

namespace syncline::worker {
namespace {

absl::StatusOr<std::unique_ptr<worker::Worker>> CreateWorker(
    const DaemonOptions& options, uint64_t incarnation, Daemon* daemon,
    MemberLink* link) {
  worker::Worker::Options worker;
  worker.scheduler_address = daemon->scheduler_address();
  worker.data_root = {options.data_root, options.data_root_is_bound};
  SYNCLINE_ASSIGN_OR_RETURN(worker.work_dir, daemon->WorkDir());
  worker.results_root = daemon->WorkRoot();
  worker.threads = options.threads;
  worker.incarnation = incarnation;
  worker.session_secret = [link] { return link->session_secret(); };
  worker.shared_memory = options.shared_memory;
  worker.metrics = daemon->metrics();
  return worker::Worker::Create(
      worker, [link](DaemonMessage m) { link->Send(std::move(m)); });
}

absl::StatusOr<int> RunWorker(const DaemonOptions& options, Daemon* daemon) {
  std::unique_ptr<scheduler::HostedScheduler> scheduler;
  std::unique_ptr<ps::PsMember> ps;
  MemberLink* const link = daemon->AddMember();
  const uint64_t incarnation = EntropySeed();
  if (options.hosts_scheduler) {
    SYNCLINE_ASSIGN_OR_RETURN(
        scheduler, scheduler::HostedScheduler::Create(options, daemon));
  }
  if (options.alone) {
    SYNCLINE_ASSIGN_OR_RETURN(ps, ps::PsMember::Create(options, daemon));
  }
  SYNCLINE_ASSIGN_OR_RETURN(const std::string work_dir, daemon->WorkDir());
  daemon->AddReadiness([work_dir] {
    std::error_code error;
    return std::filesystem::is_directory(work_dir, error)
               ? absl::OkStatus()
               : absl::NotFoundError(
                     absl::StrCat("--work-dir ", work_dir, " is gone"));
  });
  SYNCLINE_RETURN_IF_ERROR(
      scheduler == nullptr
          ? daemon->Listen({"syncline.Worker"})
          : daemon->Listen(scheduler::HostedScheduler::Services(),
                           scheduler->Pages()));
  const absl::Cleanup stop_serving = [daemon] { daemon->StopServing(); };
  SYNCLINE_ASSIGN_OR_RETURN(const auto worker,
                            CreateWorker(options, incarnation, daemon, link));
  const absl::Cleanup leave = [daemon] { daemon->Leave(); };
  if (scheduler != nullptr) scheduler->Start();
  if (ps != nullptr) ps->Join({TaskKind::kPs, 0}, /*auto_index=*/false);
  daemon->Join(link, options.task, options.auto_index, incarnation,
               [&worker](const SchedulerMessage& command) {
                 worker->OnCommand(command);
               });

  const int exit_code = daemon->AwaitExit(
      [&scheduler] { return scheduler != nullptr && scheduler->busy(); });
  daemon->Leave();
  if (ps != nullptr) ps->Drain(daemon->drain_deadline());
  if (scheduler != nullptr) {
    scheduler->Drain(exit_code, daemon->drain_deadline());
  }
  return exit_code;
}

}  // namespace
}  // namespace syncline::worker

int main(int argc, char** argv) {
  syncline::RestartWithPassiveWaiting(argv);
  return syncline::DaemonMain(syncline::DaemonKind::kWorker, argc, argv,
                              &syncline::worker::RunWorker,
                              &syncline::scheduler::HostedScheduler::Validate);
}
