#ifndef SYNCLINE_SCHEDULER_CTL_RECONNECTS_H_
#define SYNCLINE_SCHEDULER_CTL_RECONNECTS_H_

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "scheduler/ctl/interrupt_signals.h"

namespace syncline::ctl {

// The calls of a command that follows a stream of the scheduler's: a scheduler
// that is restarted gives the same stream again, and under TLS a connection
// ends when it has its age. Thread-compatible.
class Reconnects {
 public:
  // Something has come by the stream.
  void OnHeard() { heard_ = heard_now_ = true; }

  // The stream has ended with `ended`, at `now`, which is monotonic. OK, a
  // moment later: it is to be opened again. Errors: `ended`: not to be mended
  // by that, nothing has ever come, or nothing for 20 s; Cancelled: Ctrl-C.
  absl::Status Await(const absl::Status& ended, absl::Time now,
                     InterruptSignals* interrupts);

 private:
  bool heard_ = false;
  bool heard_now_ = false;  // since the last Await
  absl::Time failing_since_ = absl::InfiniteFuture();
};

}  // namespace syncline::ctl

#endif  // SYNCLINE_SCHEDULER_CTL_RECONNECTS_H_
