#ifndef SYNCLINE_WORKER_EXPORT_KEPT_RESULTS_H_
#define SYNCLINE_WORKER_EXPORT_KEPT_RESULTS_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace syncline::worker {

// Folders of results that the scheduler could not store: the only copy of what
// a job has trained. They outlive the process. A later worker removes a folder
// that has not changed for this long.
inline constexpr absl::Duration kKeptResultsAge = absl::Hours(24 * 7);

// ROOT/syncline-results-JOB-INCARNATION, the incarnation shortened.
std::string KeptResultsFolder(absl::string_view root, absl::string_view job_id,
                              uint64_t incarnation);

// Removes such folders in `root` that are this user's and in which no file has
// changed for kKeptResultsAge, by the wall clock, and logs each. Returns how
// many; a folder that cannot be read or removed stays.
int RemoveOldResults(const std::string& root);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_EXPORT_KEPT_RESULTS_H_
