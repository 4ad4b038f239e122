#ifndef SYNCLINE_SCHEDULER_STOPPING_H_
#define SYNCLINE_SCHEDULER_STOPPING_H_

#include "absl/status/status.h"

namespace syncline {

// What a scheduler that was told to end answers, until it has: its clients tell
// that from a scheduler that was lost.
inline constexpr char kSchedulerStopping[] = "the scheduler is stopping";

inline absl::Status SchedulerStopping() {
  return absl::UnavailableError(kSchedulerStopping);
}

}  // namespace syncline

#endif  // SYNCLINE_SCHEDULER_STOPPING_H_
