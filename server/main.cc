// syncline-ps: one ps, its membership, and the end.

#include "absl/cleanup/cleanup.h"
#include "common/base/status_macros.h"
#include "common/daemon/daemon.h"
#include "server/service/ps_member.h"

namespace syncline::ps {
namespace {

absl::StatusOr<int> RunPs(const DaemonOptions& options, Daemon* daemon) {
  SYNCLINE_ASSIGN_OR_RETURN(const auto ps,
                            ps::PsMember::Create(options, daemon));
  SYNCLINE_RETURN_IF_ERROR(daemon->Listen({"syncline.ParameterServer"}));
  const absl::Cleanup stop_serving = [daemon] { daemon->StopServing(); };
  ps->Join(options.task, options.auto_index);

  const int exit_code = daemon->AwaitExit();
  daemon->Leave();
  ps->Drain(daemon->drain_deadline());
  return exit_code;
}

}  // namespace
}  // namespace syncline::ps

int main(int argc, char** argv) {
  return syncline::DaemonMain(syncline::DaemonKind::kPs, argc, argv,
                              &syncline::ps::RunPs);
}
