#ifndef SYNCLINE_SCHEDULER_CORE_STOPPING_H_
#define SYNCLINE_SCHEDULER_CORE_STOPPING_H_

#include "absl/status/status.h"

namespace syncline::scheduler {

// The error of a scheduler that was told to end, until it has ended. By it
// clients tell a scheduler that ends from one that was lost.
inline constexpr char kSchedulerStopping[] = "the scheduler is stopping";

inline absl::Status SchedulerStopping() {
  return absl::UnavailableError(kSchedulerStopping);
}

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_CORE_STOPPING_H_
