// Goal: the first of a signal and a request ends the wait, whichever thread it
// comes from. Method: signals to the own process, requests from a pool.

#include "common/daemon/exit_request.h"

#include <unistd.h>

#include <csignal>

#include "common/system/thread_pool.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

TEST(ExitRequestTest, ASignalEndsTheWait) {
  for (const int signal : {SIGTERM, SIGINT}) {
    ExitRequest exit;
    kill(getpid(), signal);
    const ExitReason reason = exit.Await();
    EXPECT_EQ(reason.signal, signal);
    EXPECT_EQ(reason.text, signal == SIGTERM ? "SIGTERM" : "SIGINT");
  }
}

TEST(ExitRequestTest, ARequestFromAnotherThreadEndsTheWait) {
  ExitRequest exit;
  ThreadPool pool("asks", 1);
  ASSERT_TRUE(pool.TrySubmit([&exit] { exit.Request(138, "the job failed"); }));
  const ExitReason reason = exit.Await();
  EXPECT_EQ(reason.signal, 0);
  EXPECT_EQ(reason.exit_code, 138);
  EXPECT_EQ(reason.text, "the job failed");
}

TEST(ExitRequestTest, TheFirstRequestCounts) {
  ExitRequest exit;
  exit.Request(1, "first");
  exit.Request(0, "second");
  EXPECT_EQ(exit.Await().exit_code, 1);
}

TEST(ExitRequestDeathTest, ASecondSignalEndsTheProcess) {
  EXPECT_EXIT(
      {
        ExitRequest exit;
        kill(getpid(), SIGTERM);
        exit.Await();
        kill(getpid(), SIGTERM);
        pause();
      },
      ::testing::KilledBySignal(SIGTERM), "");
}

}  // namespace
}  // namespace syncline
