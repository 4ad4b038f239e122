#ifndef SYNCLINE_SCHEDULER_CTL_SYNCTL_H_
#define SYNCLINE_SCHEDULER_CTL_SYNCTL_H_

#include <optional>
#include <string>

#include "common/rpc/transport_security.h"
#include "scheduler/ctl/checkpoints_command.h"
#include "scheduler/ctl/plan_command.h"
#include "scheduler/ctl/state_command.h"

namespace syncline::ctl {

// The inputs of synctl from its process besides the arguments.
struct SynctlEnvironment {
  std::optional<std::string> tf_config;  // TF_CONFIG
  std::string scheduler;                 // SYNCLINE_SCHEDULER
  std::string data_root;                 // SYNCLINE_DATA
  TlsFiles tls;                          // SYNCLINE_TLS_CERT, _KEY and _CA
  std::string token;                     // SYNCLINE_TOKEN
  std::string token_file;                // SYNCLINE_TOKEN_FILE
  std::string traceparent;               // TRACEPARENT
  std::string binary_dir;                // where synctl's executable is
  JobPlanner planner;                    // what worker and ps plan
  CheckpointTools checkpoints;           // what they write
  StateChecker state_checker;            // of the scheduler
};

// Parses the arguments and runs the command. Returns the exit code; see
// exit_codes.h.
int RunSynctl(int argc, char** argv, const SynctlEnvironment& environment);

}  // namespace syncline::ctl

#endif  // SYNCLINE_SCHEDULER_CTL_SYNCTL_H_
