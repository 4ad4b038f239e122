#ifndef SYNCLINE_SCHEDULER_SERVICE_STATE_CHECK_H_
#define SYNCLINE_SCHEDULER_SERVICE_STATE_CHECK_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace syncline::scheduler {

// The contents of a state, and its faults.
struct StateFindings {
  size_t jobs = 0;
  size_t unfinished = 0;  // of these
  size_t files = 0;       // of jobs
  uint64_t file_bytes = 0;
  uint64_t epoch = 0;
  // One line each, with the record or the file; empty: a scheduler can start
  // with it, and each file is what its record says.
  std::vector<std::string> problems;
};

// Looks at a state folder, or at an archive that StateBackup made, without
// changing either. A folder may be in use; then what changes meanwhile may look
// wrong, but links are looked at again before they are called so. The database
// of an archive is unpacked into a temporary folder. Errors: NotFound: there is
// no such state; DataLoss: the archive is cut off, has something after its end,
// or the database cannot be opened; Unavailable: the folder changes faster than
// it can be looked at; FailedPrecondition, with the name: it is a pipe or a
// device, which is not opened, or it has a symbolic link, a hard link to a
// file that is not in the folder, a device, a name that leads out of the
// folder, or a name twice. A state has none of these, and a scheduler or `tar`
// could follow them to files elsewhere.
absl::StatusOr<StateFindings> CheckState(const std::string& path);

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_SERVICE_STATE_CHECK_H_
