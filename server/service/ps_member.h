#ifndef SYNCLINE_SERVER_SERVICE_PS_MEMBER_H_
#define SYNCLINE_SERVER_SERVICE_PS_MEMBER_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/daemon/daemon.h"
#include "common/system/periodic_task.h"
#include "server/service/ps_commands.h"
#include "server/service/ps_server.h"

namespace syncline::ps {

// The ps role of a process: a PsServer, its commands, its membership. Used from
// the main thread, in the order of the functions.
class PsMember {
 public:
  // Before daemon->Listen(). `daemon` outlives this object, which outlives the
  // gRPC server. Errors: PsServer::Create's.
  static absl::StatusOr<std::unique_ptr<PsMember>> Create(
      const DaemonOptions& options, Daemon* daemon);

  void Join(const TaskId& task, bool auto_index);
  // After daemon->Leave().
  void Drain(absl::Time deadline);

 private:
  PsMember(std::unique_ptr<PsServer> server, Daemon* daemon, MemberLink* link,
           std::string checkpoint_dir);
  // Tells the scheduler how the jobs' tables fare and what jobs have skipped.
  void Report();

  Daemon* const daemon_;
  MemberLink* const link_;
  const uint64_t incarnation_;
  const std::unique_ptr<PsServer> server_;
  PsCommands commands_;
  PeriodicTask reports_;  // last, like the one before: they use the rest
};

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_SERVICE_PS_MEMBER_H_
