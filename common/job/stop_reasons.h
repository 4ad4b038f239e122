#ifndef SYNCLINE_COMMON_JOB_STOP_REASONS_H_
#define SYNCLINE_COMMON_JOB_STOP_REASONS_H_

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace syncline {

// Reasons of StopJob that a member acts upon.

// Stops a worker of a job that ends early: whatever it was about to store is no
// result of the job.
inline constexpr char kJobEndsEarly[] = "the job ends early";

// Begins the reason if the job is to have another attempt.
inline constexpr char kJobGoesBack[] = "QUEUED: ";
// Follows if that was asked for, and a checkpoint was made for it.
inline constexpr char kPlannedMove[] = "planned move: ";

// True if a job that is stopped so has lost a member, and begins again behind
// its last checkpoint.
inline bool IsBackAfterLoss(absl::string_view reason) {
  return absl::ConsumePrefix(&reason, kJobGoesBack) &&
         !absl::StartsWith(reason, kPlannedMove);
}

}  // namespace syncline

#endif  // SYNCLINE_COMMON_JOB_STOP_REASONS_H_
