// syncline-scheduler: one scheduler, perhaps one job, and the end.

#include "absl/cleanup/cleanup.h"
#include "common/base/status_macros.h"
#include "common/daemon/daemon.h"
#include "scheduler/hosted_scheduler.h"

namespace syncline::scheduler {
namespace {

absl::StatusOr<int> RunScheduler(const DaemonOptions& options, Daemon* daemon) {
  SYNCLINE_ASSIGN_OR_RETURN(
      const auto scheduler,
      scheduler::HostedScheduler::Create(options, daemon));
  SYNCLINE_RETURN_IF_ERROR(daemon->Listen(
      scheduler::HostedScheduler::Services(), scheduler->Pages()));
  const absl::Cleanup stop_serving = [daemon] { daemon->StopServing(); };
  scheduler->Start();

  const int exit_code =
      daemon->AwaitExit([&scheduler] { return scheduler->busy(); });
  scheduler->Drain(exit_code, daemon->drain_deadline());
  return exit_code;
}

}  // namespace
}  // namespace syncline::scheduler

int main(int argc, char** argv) {
  return syncline::DaemonMain(syncline::DaemonKind::kScheduler, argc, argv,
                              &syncline::scheduler::RunScheduler,
                              &syncline::scheduler::HostedScheduler::Validate);
}
