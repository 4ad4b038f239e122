#ifndef SYNCLINE_COMMON_JOB_STOP_REASONS_H_
#define SYNCLINE_COMMON_JOB_STOP_REASONS_H_

namespace syncline {

// Reasons of StopJob that a member acts upon.

// Stops a worker of a job that ends early: whatever it was about to store is no
// result of the job.
inline constexpr char kJobEndsEarly[] = "the job ends early";

// Begins the reason if the job is to have another attempt.
inline constexpr char kJobGoesBack[] = "QUEUED: ";

}  // namespace syncline

#endif  // SYNCLINE_COMMON_JOB_STOP_REASONS_H_
