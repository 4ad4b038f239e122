#include "common/rpc/grpc_timers.h"

#include <chrono>

#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/system/log.h"

// gRPC's own, not declared in its public headers: wakes the timer thread. Weak:
// a gRPC without it works as before.
extern void grpc_kick_poller() __attribute__((weak));

namespace syncline {
namespace {

constexpr absl::Duration kLookPeriod = absl::Milliseconds(500);

}  // namespace

absl::Time WallNow() {
  return absl::FromChrono(std::chrono::system_clock::now());
}

bool WallClockSteps::SetBack(absl::Time wall, absl::Time monotonic) {
  const absl::Duration ahead = wall - monotonic;
  const bool set_back = ahead_.has_value() && ahead < *ahead_ - kSmallest;
  ahead_ = ahead;
  return set_back;
}

GrpcTimerWaker::GrpcTimerWaker()
    : look_("grpc-timers", kLookPeriod, [this] {
        if (!steps_.SetBack(WallNow(), MonotonicNow())) return;
        LogWarning("the wall clock was set back");
        if (grpc_kick_poller != nullptr) grpc_kick_poller();
      }) {}

}  // namespace syncline
