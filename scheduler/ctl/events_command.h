#ifndef SYNCLINE_SCHEDULER_CTL_EVENTS_COMMAND_H_
#define SYNCLINE_SCHEDULER_CTL_EVENTS_COMMAND_H_

#include <string>

#include "scheduler/ctl/text/console.h"

namespace syncline::ctl {

struct EventsOptions {
  std::string scheduler;  // its address
  std::string job_id;
  bool follow = false;
};

// `synctl events`: all that has happened to a job, and with `follow` what
// happens to it until it ends. Returns the exit code.
int RunEvents(const EventsOptions& options, const Console& console);

}  // namespace syncline::ctl

#endif  // SYNCLINE_SCHEDULER_CTL_EVENTS_COMMAND_H_
