#include "scheduler/ctl/interrupt_signals.h"

#include <pthread.h>

#include <algorithm>

#include "common/base/clock.h"
namespace syncline::ctl {

InterruptSignals::InterruptSignals() {
  sigemptyset(&watched_);
  for (int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&watched_, signal);
  pthread_sigmask(SIG_BLOCK, &watched_, &before_);
}

InterruptSignals::~InterruptSignals() {
  // A signal that was not taken must not kill synctl before its teardown.
  while (Take()) {
  }
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

bool InterruptSignals::WaitFor(absl::Duration timeout) {
  const absl::Time deadline = MonotonicNow() + timeout;
  for (;;) {
    const absl::Duration left =
        std::max(deadline - MonotonicNow(), absl::ZeroDuration());
    const timespec wait = absl::ToTimespec(left);
    if (sigtimedwait(&watched_, nullptr, &wait) > 0) return true;
    // EINTR: a signal that is not ours, such as SIGCONT.
    if (errno != EINTR) return false;
  }
}

}  // namespace syncline::ctl
