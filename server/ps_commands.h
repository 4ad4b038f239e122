#ifndef SYNCLINE_SERVER_PS_COMMANDS_H_
#define SYNCLINE_SERVER_PS_COMMANDS_H_

#include <cstdint>
#include <functional>

#include "common/base/thread_pool.h"
#include "proto/scheduler.pb.h"
#include "server/server.h"

namespace syncline {

// Carries out the scheduler's commands on a ps, one after the other, on a
// thread of its own: opening and closing a job takes time. Thread-safe.
//
//   PrepareJob -> OpenJob  -> JobPrepared, with the problem if there is one
//   StopJob    -> CloseJob -> JobDone{released}, also for a job it has not;
//                 before it the last PsReport, which stays after the job
class PsCommands {
 public:
  // Its shard of a job is that of the participant with `incarnation`. `server`
  // outlives this object. `send` is thread-safe and does not block.
  PsCommands(PsServer* server, uint64_t incarnation,
             std::function<void(DaemonMessage)> send);
  ~PsCommands();  // finishes what was ordered

  // Other commands are ignored. Does not block.
  void OnCommand(const SchedulerMessage& command);

 private:
  absl::Status Open(const JobAssignment& assignment);
  void Prepare(const JobAssignment& assignment);
  void Stop(const StopJob& stop);

  PsServer* const server_;
  const uint64_t incarnation_;
  const std::function<void(DaemonMessage)> send_;
  ThreadPool thread_;  // last: it uses the rest
};

}  // namespace syncline

#endif  // SYNCLINE_SERVER_PS_COMMANDS_H_
