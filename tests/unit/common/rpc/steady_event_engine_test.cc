// Goal: gRPC's engine runs what is due, not before its time, and not what was
// cancelled. Method: the queue with made-up times; the engine that gRPC gets
// with short waits. That steps of the wall clock do not disturb it is shown by
// tests/fault/clock_step_test.

#include "common/rpc/steady_event_engine.h"

#include <chrono>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "gmock/gmock.h"
#include "grpc/event_engine/event_engine.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

using grpc_event_engine::experimental::CreateEventEngine;
using grpc_event_engine::experimental::EventEngine;
using ::testing::UnorderedElementsAre;

constexpr absl::Time kStart = absl::FromUnixSeconds(1000);

class TimerQueueTest : public testing::Test {
 protected:
  int64_t Add(int seconds, char name) {
    return queue_.Add(kStart + absl::Seconds(seconds),
                      [this, name] { ran_ += name; });
  }
  std::string RunDue(int seconds) {
    ran_.clear();
    for (auto& run : queue_.TakeDue(kStart + absl::Seconds(seconds))) run();
    return ran_;
  }

  TimerQueue queue_;
  std::string ran_;
};

TEST_F(TimerQueueTest, TakesWhatIsDueInOrder) {
  EXPECT_EQ(queue_.next_due(), absl::InfiniteFuture());
  Add(3, 'd');
  Add(1, 'a');
  Add(2, 'b');
  Add(2, 'c');
  EXPECT_EQ(queue_.next_due(), kStart + absl::Seconds(1));
  EXPECT_EQ(RunDue(0), "");
  EXPECT_EQ(RunDue(2), "abc");
  EXPECT_EQ(queue_.next_due(), kStart + absl::Seconds(3));
  EXPECT_EQ(RunDue(9), "d");
  EXPECT_EQ(RunDue(9), "");
}

TEST_F(TimerQueueTest, AnIdTakesItsTimerOnce) {
  const int64_t a = Add(1, 'a');
  const int64_t b = Add(1, 'b');
  EXPECT_NE(a, b);
  EXPECT_TRUE(queue_.Take(a).has_value());
  EXPECT_FALSE(queue_.Take(a).has_value());
  EXPECT_FALSE(queue_.Take(0).has_value());
  EXPECT_EQ(RunDue(1), "b");
  EXPECT_FALSE(queue_.Take(b).has_value()) << "it has run";
}

// The names of what the engine has run.
class Record {
 public:
  void Add(char name) {
    MutexLock lock(&mu_);
    names_ += name;
    changed_.SignalAll();
  }
  std::string Await(size_t count) {
    MutexLock lock(&mu_);
    const absl::Time deadline = MonotonicNow() + absl::Seconds(30);
    while (names_.size() < count && changed_.WaitUntil(&mu_, deadline)) {
    }
    return names_;
  }

 private:
  Mutex mu_;
  CondVar changed_;
  std::string names_ ABSL_GUARDED_BY(mu_);
};

TEST(SteadyEventEngineTest, IsWhatGrpcGets) {
  UseSteadyEventEngine();
  UseSteadyEventEngine();
  Record record;
  const absl::Time start = MonotonicNow();
  EventEngine::TaskHandle cancelled;
  {
    // gRPC may drop its engine and ask for one again.
    const std::unique_ptr<EventEngine> engine = CreateEventEngine();
    engine->RunAfter(std::chrono::milliseconds(300), [&] { record.Add('b'); });
    engine->RunAfter(std::chrono::milliseconds(100), [&] { record.Add('a'); });
    engine->RunAfter(std::chrono::milliseconds(500), [&] { record.Add('c'); });
    cancelled =
        engine->RunAfter(std::chrono::hours(1), [&] { record.Add('x'); });
  }
  const std::unique_ptr<EventEngine> engine = CreateEventEngine();
  EXPECT_TRUE(engine->Cancel(cancelled));
  EXPECT_FALSE(engine->Cancel(cancelled));
  // Timers that are due at the same time, as behind a stall, run in no order.
  EXPECT_THAT(record.Await(3), UnorderedElementsAre('a', 'b', 'c'));
  EXPECT_GE(MonotonicNow() - start, absl::Milliseconds(500));
  EXPECT_FALSE(engine->Cancel(
      engine->RunAfter(std::chrono::nanoseconds(0), [&] { record.Add('d'); })))
      << "runs at once";
  EXPECT_THAT(record.Await(4), UnorderedElementsAre('a', 'b', 'c', 'd'));
}

// What a cancelled function holds may cancel a timer itself.
TEST(SteadyEventEngineTest, ACancelledFunctionMayCancelAsItEnds) {
  UseSteadyEventEngine();
  const std::unique_ptr<EventEngine> engine = CreateEventEngine();
  const EventEngine::TaskHandle inner =
      engine->RunAfter(std::chrono::hours(1), [] {});
  bool cancelled = false;
  std::shared_ptr<void> held(nullptr,
                             [&](void*) { cancelled = engine->Cancel(inner); });
  const EventEngine::TaskHandle outer =
      engine->RunAfter(std::chrono::hours(1), [held = std::move(held)] {});
  EXPECT_TRUE(engine->Cancel(outer));
  EXPECT_TRUE(cancelled);
}

}  // namespace
}  // namespace syncline
