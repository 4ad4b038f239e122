#ifndef SYNCLINE_COMMON_JOB_KEPT_RESULTS_H_
#define SYNCLINE_COMMON_JOB_KEPT_RESULTS_H_

namespace syncline {

// A member's activity (WorkerReport) that begins so says which results of its
// job were not stored, and on which host and in which folder they are. The
// scheduler adds it to the reason of a job that has ended without them.
inline constexpr char kNotStored[] = "not stored: ";

}  // namespace syncline

#endif  // SYNCLINE_COMMON_JOB_KEPT_RESULTS_H_
