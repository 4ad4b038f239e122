#ifndef SYNCLINE_SCHEDULER_CTL_SYNCTL_H_
#define SYNCLINE_SCHEDULER_CTL_SYNCTL_H_

#include <optional>
#include <string>

#include "scheduler/ctl/plan_command.h"

namespace syncline::ctl {

// The inputs of synctl from its process besides the arguments.
struct SynctlEnvironment {
  std::optional<std::string> tf_config;  // TF_CONFIG
  std::string scheduler;                 // SYNCLINE_SCHEDULER
  std::string data_root;                 // SYNCLINE_DATA
  std::string binary_dir;                // where synctl's executable is
  JobPlanner planner;                    // what worker and ps plan
};

// Parses the arguments and runs the command. Returns the exit code; see
// exit_codes.h.
int RunSynctl(int argc, char** argv, const SynctlEnvironment& environment);

}  // namespace syncline::ctl

#endif  // SYNCLINE_SCHEDULER_CTL_SYNCTL_H_
