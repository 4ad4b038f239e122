// Goal: Cancel ends what is under way and what begins later, once each, and
// nothing that is over. Method: scopes that count, before, during and after
// Cancel; threads that race with it.

#include "common/base/cancellation.h"

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace syncline {
namespace {

TEST(CancellationTest, EndsWhatIsUnderWayAndWhatComesLater) {
  Cancellation cancellation;
  int over = 0, first = 0, second = 0, later = 0;
  {
    const Cancellation::Scope scope(&cancellation, [&] { ++over; });
  }
  {
    const Cancellation::Scope a(&cancellation, [&] { ++first; });
    const Cancellation::Scope b(&cancellation, [&] { ++second; });
    EXPECT_FALSE(cancellation.cancelled());
    cancellation.Cancel();
    EXPECT_TRUE(cancellation.cancelled());
    EXPECT_EQ(first, 1);
    EXPECT_EQ(second, 1);
    cancellation.Cancel();
  }
  const Cancellation::Scope scope(&cancellation, [&] { ++later; });
  EXPECT_EQ(over, 0);
  EXPECT_EQ(first, 1);
  EXPECT_EQ(second, 1);
  EXPECT_EQ(later, 1);
}

TEST(CancellationTest, NoneIsNeeded) {
  int ended = 0;
  {
    const Cancellation::Scope scope(nullptr, [&] { ++ended; });
  }
  EXPECT_EQ(ended, 0);
}

TEST(CancellationTest, NothingIsEndedAfterItsScope) {
  for (int round = 0; round < 100; ++round) {
    Cancellation cancellation;
    std::vector<std::thread> threads;
    std::atomic<int> wrong = 0;
    for (int t = 0; t < 3; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < 20; ++i) {
          auto alive = std::make_unique<std::atomic<int>>(0);
          {
            const Cancellation::Scope scope(&cancellation,
                                            [&] { alive->fetch_add(1); });
          }
          if (alive->load() > 1) ++wrong;
        }
      });
    }
    cancellation.Cancel();
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong, 0);
  }
}

}  // namespace
}  // namespace syncline
