// Goal: Ctrl-C is an answer to a question, not the end of the process. Method:
// signals to this process, which would kill it if they were not held.

#include "scheduler/ctl/interrupt_signals.h"

#include <unistd.h>

#include "gtest/gtest.h"

namespace syncline::ctl {
namespace {

TEST(InterruptSignalsTest, TakesEachSignalOnce) {
  InterruptSignals interrupts;
  EXPECT_FALSE(interrupts.Take());
  for (int signal : {SIGINT, SIGTERM, SIGHUP}) {
    kill(getpid(), signal);
    EXPECT_TRUE(interrupts.Take()) << signal;
    EXPECT_FALSE(interrupts.Take()) << signal;
  }
}

TEST(InterruptSignalsTest, WaitReturnsForASignal) {
  InterruptSignals interrupts;
  kill(getpid(), SIGINT);
  EXPECT_TRUE(interrupts.WaitFor(absl::Hours(1)));
}

TEST(InterruptSignalsTest, SignalsNobodyTookDoNotKillAfterwards) {
  {
    InterruptSignals interrupts;
    kill(getpid(), SIGINT);
    kill(getpid(), SIGTERM);
  }
  sigset_t mask;
  pthread_sigmask(SIG_BLOCK, nullptr, &mask);
  EXPECT_EQ(sigismember(&mask, SIGINT), 0) << "the mask is restored";
}

}  // namespace
}  // namespace syncline::ctl
