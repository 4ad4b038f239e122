#ifndef SYNCLINE_COMMON_JOB_KEPT_RESULTS_H_
#define SYNCLINE_COMMON_JOB_KEPT_RESULTS_H_

namespace syncline {

// A member's activity (WorkerReport) that begins so says which results of its
// job were not stored, and on which host and in which folder they are. The
// scheduler adds it to the reason of a job that has ended without them.
inline constexpr char kNotStored[] = "not stored: ";

// The reason (StopJob) with which a worker of a job that ends early is stopped:
// whatever it was about to store is no result of the job.
inline constexpr char kJobEndsEarly[] = "the job ends early";

}  // namespace syncline

#endif  // SYNCLINE_COMMON_JOB_KEPT_RESULTS_H_
