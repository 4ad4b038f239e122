// Goal: a lock excludes other threads, and a wait ends by a signal or at its
// deadline. Method: two threads; deadlines that have passed.

#include "common/base/mutex.h"

#include <thread>

#include "common/base/clock.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

struct Shared {
  Mutex mu;
  CondVar changed;
  int count ABSL_GUARDED_BY(mu) = 0;
};

TEST(MutexTest, NoIncrementIsLost) {
  constexpr int kTimes = 10'000;
  Shared shared;
  const auto increment = [&shared] {
    for (int i = 0; i < kTimes; ++i) {
      MutexLock lock(&shared.mu);
      ++shared.count;
    }
  };
  std::thread other(increment);
  increment();
  other.join();
  MutexLock lock(&shared.mu);
  EXPECT_EQ(shared.count, 2 * kTimes);
}

TEST(CondVarTest, ASignalEndsAWait) {
  Shared shared;
  std::thread other([&shared] {
    MutexLock lock(&shared.mu);
    shared.count = 1;
    shared.changed.SignalAll();
  });
  {
    const absl::Time deadline = MonotonicNow() + absl::Minutes(5);
    MutexLock lock(&shared.mu);
    while (shared.count == 0) {
      ASSERT_TRUE(shared.changed.WaitUntil(&shared.mu, deadline));
    }
  }
  other.join();
}

TEST(CondVarTest, AWaitEndsAtItsDeadlineAndHoldsTheLock) {
  Shared shared;
  {
    MutexLock lock(&shared.mu);
    // A spurious return is possible, and says true.
    while (shared.changed.WaitUntil(&shared.mu, MonotonicNow())) {
    }
    shared.count = 1;
  }
  std::thread other([&shared] {
    MutexLock lock(&shared.mu);  // was released
    ++shared.count;
  });
  other.join();
  MutexLock lock(&shared.mu);
  EXPECT_EQ(shared.count, 2);
}

}  // namespace
}  // namespace syncline
