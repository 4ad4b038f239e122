#ifndef SYNCLINE_COMMON_RPC_GRPC_TIMERS_H_
#define SYNCLINE_COMMON_RPC_GRPC_TIMERS_H_

#include <optional>

#include "absl/time/time.h"
#include "common/system/periodic_task.h"

namespace syncline {

// The wall clock as gRPC reads it. absl::Now() follows a step of it up to 2 s
// later, and a deadline made meanwhile would be off by that step.
absl::Time WallNow();

// Tells when the wall clock was set back. Pure. Thread-compatible.
class WallClockSteps {
 public:
  // A smaller step is taken for a clock that is adjusted slowly.
  static constexpr absl::Duration kSmallest = absl::Milliseconds(100);

  // True if the wall clock has lost more than kSmallest against the monotonic
  // clock since the last call.
  bool SetBack(absl::Time wall, absl::Time monotonic);

 private:
  std::optional<absl::Duration> ahead_;  // wall over monotonic
};

// Keeps gRPC's timers (deadlines, keep-alive, alarms) in time; those of its
// event engine are steady_event_engine.h's part. The timer thread of Debian's
// gRPC waits with Abseil, by the wall clock: when that clock is set back by an
// hour, no timer of the process runs for an hour. This looks twice a second and
// wakes the timer thread, which then computes its wait anew. Create it after
// gRPC has started, destroy it before gRPC ends.
class GrpcTimerWaker {
 public:
  GrpcTimerWaker();

 private:
  WallClockSteps steps_;  // the task's alone
  PeriodicTask look_;
};

}  // namespace syncline

#endif  // SYNCLINE_COMMON_RPC_GRPC_TIMERS_H_
