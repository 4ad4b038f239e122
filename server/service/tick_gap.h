#ifndef SYNCLINE_SERVER_SERVICE_TICK_GAP_H_
#define SYNCLINE_SERVER_SERVICE_TICK_GAP_H_

#include "absl/time/time.h"

namespace syncline::ps {

// Tells from the gaps between the ticks of a process for how long it did not
// run: it was frozen (SIGSTOP, a virtual machine's pause), or starved, and
// received no call. The time of a tick itself is no gap: calls come in
// meanwhile. Pure, thread-compatible.
class TickGap {
 public:
  // A shorter gap is none.
  static constexpr absl::Duration kFrozenMin = absl::Seconds(1);

  // `period`: how long after the end of a tick the next one begins.
  TickGap(absl::Duration period, absl::Time now)
      : period_(period), ended_(now) {}

  // A tick begins. Returns for how long the process did not run before it.
  absl::Duration OnBegin(absl::Time now) const {
    const absl::Duration gap = now - ended_;
    return gap > kFrozenMin ? gap - period_ : absl::ZeroDuration();
  }
  // The tick ends.
  void OnEnd(absl::Time now) { ended_ = now; }

 private:
  const absl::Duration period_;
  absl::Time ended_;  // the latest tick
};

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_SERVICE_TICK_GAP_H_
