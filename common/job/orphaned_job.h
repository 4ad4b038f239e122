#ifndef SYNCLINE_COMMON_JOB_ORPHANED_JOB_H_
#define SYNCLINE_COMMON_JOB_ORPHANED_JOB_H_

#include <cstddef>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace syncline {

// Stand in the reason for which a daemon stops its part of a job whose
// scheduler does not come back, and so in the errors of members that are about
// to do the same and still called it.
inline constexpr char kSchedulerAt[] = "scheduler at ";
inline constexpr char kOutOfReachFor[] = " has been out of reach for ";

inline std::string OrphanedText(absl::string_view scheduler_address,
                                absl::Duration time) {
  return absl::StrCat(kSchedulerAt, scheduler_address, kOutOfReachFor,
                      absl::FormatDuration(time));
}

// True if `reason` has an OrphanedText in it: the job itself is not at fault.
inline bool IsOfOrphanedJob(absl::string_view reason) {
  const size_t scheduler = reason.find(kSchedulerAt);
  return scheduler != absl::string_view::npos &&
         absl::StrContains(reason.substr(scheduler), kOutOfReachFor);
}

// Stands in the answer of a ps that has none of the job whose worker calls: a
// process that has come in the place of one that is lost, before the scheduler
// has noticed that, or that has closed the job.
inline constexpr char kNotOpenOnPs[] = " is not open on this ps";

inline bool IsOfLostPs(absl::string_view reason) {
  return absl::StrContains(reason, kNotOpenOnPs);
}

}  // namespace syncline

#endif  // SYNCLINE_COMMON_JOB_ORPHANED_JOB_H_
