#ifndef SYNCLINE_SCHEDULER_CTL_TOP_COMMAND_H_
#define SYNCLINE_SCHEDULER_CTL_TOP_COMMAND_H_

#include <string>

#include "scheduler/ctl/text/console.h"

namespace syncline::ctl {

struct TopOptions {
  std::string scheduler;  // its address
  bool once = false;
  double period_seconds = 2;
};

// Shows jobs, workers and members, again and again on a terminal until Ctrl-C;
// elsewhere, with `once` and in JSON a single time, where shares of time are
// over the second before. Returns the exit code.
int RunTop(const TopOptions& options, const Console& console);

}  // namespace syncline::ctl

#endif  // SYNCLINE_SCHEDULER_CTL_TOP_COMMAND_H_
