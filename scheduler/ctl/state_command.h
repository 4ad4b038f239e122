#ifndef SYNCLINE_SCHEDULER_CTL_STATE_COMMAND_H_
#define SYNCLINE_SCHEDULER_CTL_STATE_COMMAND_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "scheduler/ctl/text/console.h"

namespace syncline::ctl {

// The contents of a saved state, as the scheduler's own code finds them.
struct StateReport {
  size_t jobs = 0;
  size_t unfinished = 0;  // of these
  size_t files = 0;
  uint64_t file_bytes = 0;
  uint64_t epoch = 0;
  std::vector<std::string> problems;  // a line each; empty: it is whole
};
// Of an archive or a folder.
using StateChecker =
    std::function<absl::StatusOr<StateReport>(const std::string& path)>;

// Each returns the exit code.
//
// Saves the state of the scheduler as the archive `file`, which must not be
// there yet.
int RunStateBackup(const std::string& scheduler, const std::string& file,
                   const Console& console);
// 1 if something is damaged or missing.
int RunStateVerify(const std::string& path, const StateChecker& check,
                   const Console& console);

}  // namespace syncline::ctl

#endif  // SYNCLINE_SCHEDULER_CTL_STATE_COMMAND_H_
