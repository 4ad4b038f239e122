// Goal: every accepted task runs exactly once, one thread keeps the order, the
// bound is held, Stop runs what is queued. Method: tasks that wait for each
// other under a mutex; no timing.

#include "common/system/thread_pool.h"

#include <vector>

#include "absl/time/clock.h"
#include "common/base/mutex.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

// A door that tasks wait at, with a deadline so that a bug fails the test.
class Gate {
 public:
  void Open() {
    MutexLock lock(&mu_);
    open_ = true;
    cv_.SignalAll();
  }
  bool Await() {
    const absl::Time deadline = absl::Now() + absl::Seconds(30);
    MutexLock lock(&mu_);
    while (!open_ && absl::Now() < deadline) cv_.WaitUntil(&mu_, deadline);
    return open_;
  }

 private:
  Mutex mu_;
  CondVar cv_;
  bool open_ ABSL_GUARDED_BY(mu_) = false;
};

TEST(ThreadPoolTest, OneThreadKeepsTheOrder) {
  std::vector<int> order;
  {
    ThreadPool pool("one", 1);
    for (int i = 0; i < 1000; ++i) {
      ASSERT_TRUE(pool.TrySubmit([&order, i] { order.push_back(i); }));
    }
  }
  ASSERT_EQ(order.size(), 1000u);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(order[i], i);
}

TEST(ThreadPoolTest, EveryTaskRunsOnceOnManyThreads) {
  Mutex mu;
  std::vector<int> runs(1000);
  {
    ThreadPool pool("many", 4);
    for (int i = 0; i < 1000; ++i) {
      ASSERT_TRUE(pool.TrySubmit([&mu, &runs, i] {
        MutexLock lock(&mu);
        ++runs[i];
      }));
    }
  }
  for (const int count : runs) EXPECT_EQ(count, 1);
}

TEST(ThreadPoolTest, ThreadsWorkAtTheSameTime) {
  Gate gate;
  bool waited = false;
  ThreadPool pool("two", 2);
  ASSERT_TRUE(pool.TrySubmit([&] { waited = gate.Await(); }));
  ASSERT_TRUE(pool.TrySubmit([&] { gate.Open(); }));
  pool.Stop();
  EXPECT_TRUE(waited);
}

TEST(ThreadPoolTest, DeclinesWhenFullAndWhenStopped) {
  Gate started;
  Gate release;
  ThreadPool pool("full", 1, /*queue_max=*/2);
  ASSERT_TRUE(pool.TrySubmit([&] {
    started.Open();
    release.Await();
  }));
  ASSERT_TRUE(started.Await());
  EXPECT_TRUE(pool.TrySubmit([] {}));
  EXPECT_TRUE(pool.TrySubmit([] {}));
  EXPECT_FALSE(pool.TrySubmit([] {}));
  EXPECT_EQ(pool.queue_length(), 2u);
  release.Open();
  pool.Stop();
  EXPECT_EQ(pool.queue_length(), 0u);
  EXPECT_FALSE(pool.TrySubmit([] {}));
}

}  // namespace
}  // namespace syncline
