#ifndef SYNCLINE_SCHEDULER_CTL_REGIME_COMMAND_H_
#define SYNCLINE_SCHEDULER_CTL_REGIME_COMMAND_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "proto/job_spec.pb.h"
#include "scheduler/ctl/text/console.h"

namespace syncline::ctl {

// As the command line has them; empty: stays as it is.
struct RegimeOptions {
  std::string scheduler;  // its address
  std::string job_id;
  std::string mode;
  std::optional<uint32_t> bound;
  std::optional<double> learning_rate_factor;
  std::string strategy;
  std::optional<uint32_t> sharding_stage;
  std::string wire_type;
  std::string compression;
  std::string reason;
  double timeout_seconds = 300;
};

// Errors: InvalidArgument: a name that is none, with its option; nothing is to
// change.
absl::StatusOr<RegimeChange> ParseRegimeChange(const RegimeOptions& options);

// `synctl regime`: changes how a running job trains, and says at which clock.
// Returns the exit code.
int RunRegime(const RegimeOptions& options, const Console& console);

}  // namespace syncline::ctl

#endif  // SYNCLINE_SCHEDULER_CTL_REGIME_COMMAND_H_
