// Goal: the budget is never exceeded and nothing of it leaks.
// Method: examples, and threads that compete for it.

#include "server/memory/in_flight_budget.h"

#include <atomic>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace syncline::ps {
namespace {

TEST(InFlightBudgetTest, HoldsEndWithTheirOwner) {
  const auto budget = std::make_shared<InFlightBudget>(100);
  InFlightBudget::Hold hold;
  ASSERT_TRUE(budget->Acquire(60, &hold).ok());
  {
    InFlightBudget::Hold other;
    EXPECT_EQ(budget->Acquire(41, &other).code(),
              absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(other.bytes(), 0u);
    EXPECT_TRUE(budget->Acquire(40, &other).ok());
    InFlightBudget::Hold moved = std::move(other);
    EXPECT_EQ(budget->used_bytes(), 100u);
  }
  EXPECT_EQ(budget->used_bytes(), 60u);
  hold = InFlightBudget::Hold();
  EXPECT_EQ(budget->used_bytes(), 0u);
}

TEST(InFlightBudgetTest, CompetitorsStayWithinTheLimit) {
  const auto budget = std::make_shared<InFlightBudget>(3);
  std::atomic<int> inside{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 2000; ++i) {
        InFlightBudget::Hold hold;
        if (!budget->Acquire(1, &hold).ok()) continue;
        EXPECT_LE(inside.fetch_add(1), 2);
        inside.fetch_sub(1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(budget->used_bytes(), 0u);
}

}  // namespace
}  // namespace syncline::ps
