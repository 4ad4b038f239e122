#ifndef SYNCLINE_SCHEDULER_CTL_OPERATE_COMMANDS_H_
#define SYNCLINE_SCHEDULER_CTL_OPERATE_COMMANDS_H_

// synctl's commands for those who run a cluster. Each returns the exit code.

#include <string>

#include "scheduler/ctl/text/console.h"

namespace syncline::ctl {

struct CheckpointOptions {
  std::string scheduler;  // its address
  std::string job_id;
  double timeout_seconds = 300;
};

// `synctl checkpoint`: has a running job write a checkpoint and waits until it
// is whole.
int RunCheckpoint(const CheckpointOptions& options, const Console& console);

struct UseOptions {
  std::string scheduler;  // its address
  std::string task;       // "ps:1"
  std::string reason;
  // Of drain: how long to wait until the member's job has left it; 0: not.
  double timeout_seconds = 600;
};

// `synctl cordon`, `uncordon`, `drain`: a member gets no more jobs; it gets
// some again; its job leaves it as well, which is waited for.
int RunCordon(const UseOptions& options, const Console& console);
int RunUncordon(const UseOptions& options, const Console& console);
int RunDrain(const UseOptions& options, const Console& console);

}  // namespace syncline::ctl

#endif  // SYNCLINE_SCHEDULER_CTL_OPERATE_COMMANDS_H_
