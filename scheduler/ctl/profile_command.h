#ifndef SYNCLINE_SCHEDULER_CTL_PROFILE_COMMAND_H_
#define SYNCLINE_SCHEDULER_CTL_PROFILE_COMMAND_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "scheduler/ctl/text/console.h"

namespace syncline::ctl {

struct ProfileOptions {
  std::string scheduler;  // its address
  std::string job_id;
  uint32_t rank = 0;  // of the worker
  uint32_t steps = 20;
  double timeout_seconds = 300;
  // Where to write a Chrome trace; empty: nowhere.
  std::string trace_file;
};

// `synctl profile`: has a worker of a running job record its next steps, and
// shows where their time went. Returns the exit code.
int RunProfile(const ProfileOptions& options, const Console& console);

}  // namespace syncline::ctl

#endif  // SYNCLINE_SCHEDULER_CTL_PROFILE_COMMAND_H_
