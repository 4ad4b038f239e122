#ifndef SYNCLINE_SCHEDULER_CTL_INTERRUPT_SIGNALS_H_
#define SYNCLINE_SCHEDULER_CTL_INTERRUPT_SIGNALS_H_

#include <csignal>

#include "absl/time/time.h"

namespace syncline::ctl {

// Ctrl-C (SIGINT), SIGTERM and SIGHUP as something a loop asks for, instead of
// something that happens to it. They are blocked for the object's life, in
// threads created after it too: create it before the first gRPC call.
// Thread-compatible; one at a time.
class InterruptSignals {
 public:
  InterruptSignals();
  ~InterruptSignals();
  InterruptSignals(const InterruptSignals&) = delete;
  InterruptSignals& operator=(const InterruptSignals&) = delete;

  // True if one has come since the last call; takes it.
  bool Take() { return WaitFor(absl::ZeroDuration()); }
  // The same, waiting up to `timeout` for it.
  bool WaitFor(absl::Duration timeout);

 private:
  sigset_t watched_;
  sigset_t before_;
};

}  // namespace syncline::ctl

#endif  // SYNCLINE_SCHEDULER_CTL_INTERRUPT_SIGNALS_H_
