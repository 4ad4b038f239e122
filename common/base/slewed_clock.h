#ifndef SYNCLINE_COMMON_BASE_SLEWED_CLOCK_H_
#define SYNCLINE_COMMON_BASE_SLEWED_CLOCK_H_

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"

namespace syncline {

// The time of day without its jumps: what leases, time-outs and records of one
// process are counted in. It begins as the wall clock and follows it by at most
// kSlew of the time that passes, so a lease never sees more than that of a
// step, and a record's time is right again after a while. Never goes back.
//
// A process that was frozen (SIGSTOP, a virtual machine's pause) read no
// message meanwhile, and must not count that as its peers' silence. The owner
// asks for the time several times per kGapMax; between two questions no more
// than that passes. The clock catches up with the wall clock as after a step.
// Thread-safe.
class SlewedClock {
 public:
  static constexpr double kSlew = 0.1;
  static constexpr absl::Duration kGapMax = absl::Seconds(1);

  absl::Time Now() ABSL_LOCKS_EXCLUDED(mu_);

  // Pure: the time after `now`, when the wall clock says `wall` and `passed`
  // has gone by since.
  static absl::Time Follow(absl::Time now, absl::Time wall,
                           absl::Duration passed);

 private:
  Mutex mu_;
  bool started_ ABSL_GUARDED_BY(mu_) = false;
  absl::Time now_ ABSL_GUARDED_BY(mu_);
  absl::Duration steady_ ABSL_GUARDED_BY(mu_);
};

}  // namespace syncline

#endif  // SYNCLINE_COMMON_BASE_SLEWED_CLOCK_H_
