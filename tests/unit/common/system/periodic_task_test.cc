// Goal: it runs again and again, at once when asked, and never after Stop.
// Method: count runs and wait for counts with a deadline.

#include "common/system/periodic_task.h"

#include "absl/time/clock.h"
#include "common/base/mutex.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

class Count {
 public:
  void Add() {
    MutexLock lock(&mu_);
    ++value_;
    cv_.SignalAll();
  }
  bool AwaitAtLeast(int value) {
    const absl::Time deadline = absl::Now() + absl::Seconds(30);
    MutexLock lock(&mu_);
    while (value_ < value && absl::Now() < deadline) {
      cv_.WaitUntil(&mu_, deadline);
    }
    return value_ >= value;
  }
  int value() {
    MutexLock lock(&mu_);
    return value_;
  }

 private:
  Mutex mu_;
  CondVar cv_;
  int value_ ABSL_GUARDED_BY(mu_) = 0;
};

TEST(PeriodicTaskTest, RunsAgainAndAgain) {
  Count runs;
  PeriodicTask task("tick", absl::Milliseconds(1), [&] { runs.Add(); });
  EXPECT_TRUE(runs.AwaitAtLeast(3));
}

TEST(PeriodicTaskTest, RunsSoonWhenAsked) {
  Count runs;
  PeriodicTask task("tick", absl::Hours(1), [&] { runs.Add(); });
  task.RunSoon();
  EXPECT_TRUE(runs.AwaitAtLeast(1));
  task.Stop();
  EXPECT_EQ(runs.value(), 1);
}

TEST(PeriodicTaskTest, StopEndsALongWaitAndNothingRunsAfter) {
  Count runs;
  PeriodicTask task("tick", absl::Hours(1), [&] { runs.Add(); });
  task.Stop();
  task.RunSoon();
  task.Stop();
  EXPECT_EQ(runs.value(), 0);
}

}  // namespace
}  // namespace syncline
