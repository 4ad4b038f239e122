// Goal: batches arrive in clock order with the right samples, no batch is
// overwritten while it is borrowed, reading ahead is bounded, every wait ends,
// and the destructor joins whatever the reader is doing.
// Method: a data set in memory whose reads can be held and counted.

#include "worker/data/prefetcher.h"

#include <atomic>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/fakes/counting_dataset.h"

namespace syncline::worker {
namespace {

using ::testing::ElementsAreArray;

absl::Time Soon() { return absl::Now() + absl::Seconds(10); }

Prefetcher::Options Plan(int64_t samples, int64_t batch, int64_t clocks) {
  Prefetcher::Options options;
  options.plan = {.sample_count = samples, .batch_size = batch, .seed = 9};
  options.clocks = clocks;
  return options;
}

TEST(PrefetcherTest, GivesThePlansBatchesInClockOrderOverEpochs) {
  CountingDataset dataset(25);
  const Prefetcher::Options options = Plan(25, 4, 20);  // 7 steps an epoch
  Prefetcher prefetcher(&dataset, options);
  EXPECT_EQ(prefetcher.rounds().steps_per_epoch, 7);
  BatchPlan plan(options.plan);
  for (int64_t clock = 0; clock < 20; ++clock) {
    auto batch = prefetcher.Next(Soon());
    ASSERT_TRUE(batch.ok()) << batch.status();
    const auto expected = plan.Indices(clock / 7, clock % 7);
    EXPECT_EQ((*batch)->size, static_cast<int64_t>(expected.size()));
    EXPECT_THAT((*batch)->labels, ElementsAreArray(expected));
    EXPECT_THAT((*batch)->feeds[0], ElementsAreArray(expected));
  }
  EXPECT_EQ(prefetcher.Next(Soon()).status().code(),
            absl::StatusCode::kOutOfRange);
}

// File order, shuffled, shuffled in windows, in buckets.
std::vector<BatchPlan::Options> AllOrders(absl::Span<const uint8_t> buckets) {
  const auto samples = static_cast<int64_t>(buckets.size());
  const BatchPlan::Options plain = {
      .sample_count = samples, .batch_size = 700, .workers = 3, .seed = 9};
  std::vector<BatchPlan::Options> orders(4, plain);
  orders[0].shuffle = false;
  orders[2].window_samples = 5000;
  orders[3].buckets = buckets;
  return orders;
}

TEST(PrefetcherTest, ALaterStartGivesTheTailOfTheSameBatches) {
  std::vector<uint8_t> buckets(10'001);
  for (size_t i = 0; i < buckets.size(); ++i) buckets[i] = i % 7 % 3;
  const CountingDataset dataset(10'001);
  int order = 0;
  for (const BatchPlan::Options& plan : AllOrders(buckets)) {
    SCOPED_TRACE(absl::StrCat("order ", order++));
    for (uint32_t rank = 0; rank < plan.workers; ++rank) {
      Prefetcher::Options options;
      options.plan = plan;
      options.plan.rank = rank;
      options.clocks = 3 * BatchPlan(plan).steps_per_epoch() - 1;
      std::vector<std::vector<float>> whole;
      Prefetcher from_zero(&dataset, options);
      for (int64_t clock = 0; clock < options.clocks; ++clock) {
        whole.push_back((*from_zero.Next(Soon()))->labels);
      }
      for (int64_t first = 0; first <= options.clocks; ++first) {
        options.first_clock = first;
        Prefetcher later(&dataset, options);
        for (int64_t clock = first; clock < options.clocks; ++clock) {
          ASSERT_EQ((*later.Next(Soon()))->labels, whole[clock])
              << "rank " << rank << ", clock " << clock << " from " << first;
        }
        EXPECT_EQ(later.Next(Soon()).status().code(),
                  absl::StatusCode::kOutOfRange);
      }
    }
  }
}

TEST(PrefetcherTest, LeasedStepsHaveTheBatchesOfOneWorker) {
  CountingDataset dataset(25);
  Prefetcher::Options options = Plan(25, 4, 20);
  options.leases = true;
  options.first_clock = 3;
  BatchPlan plan(options.plan);
  Prefetcher prefetcher(&dataset, options);
  EXPECT_EQ(prefetcher.Peek(), nullptr);
  const std::vector<int64_t> leased = {3, 5, 6, 13, 14, 19};
  prefetcher.AddStep(leased[0]);
  for (size_t i = 0; i < leased.size(); ++i) {
    if (i + 1 < leased.size()) prefetcher.AddStep(leased[i + 1]);
    const auto batch = prefetcher.Next(Soon());
    ASSERT_TRUE(batch.ok()) << batch.status();
    EXPECT_THAT((*batch)->labels,
                ElementsAreArray(plan.Indices(leased[i] / 7, leased[i] % 7)));
    EXPECT_EQ((*batch)->first_in_step, 0);
  }
}

TEST(PrefetcherTest, ALeaseThatIsNotReadYetIsNamed) {
  CountingDataset dataset(25);
  Prefetcher::Options options = Plan(25, 4, 20);
  options.leases = true;
  Prefetcher prefetcher(&dataset, options);
  dataset.Hold(true);
  prefetcher.AddStep(11);
  const absl::Status status =
      prefetcher.Next(absl::Now() + absl::Milliseconds(5)).status();
  EXPECT_EQ(status, absl::DeadlineExceededError(
                        "the data of clock 11 is still being read"));
  dataset.Hold(false);
  EXPECT_TRUE(prefetcher.Next(Soon()).ok());
}

// Seven steps an epoch, in rounds of three: the last has one.
TEST(PrefetcherTest, ARoundHasTheBatchesOfItsSteps) {
  CountingDataset dataset(25);
  Prefetcher::Options options = Plan(25, 2, 5);
  options.plan.workers = 2;
  options.plan.rank = 1;
  options.steps_of_clock = 3;
  BatchPlan plan(options.plan);
  for (int64_t first = 0; first <= options.clocks; ++first) {
    options.first_clock = first;
    Prefetcher prefetcher(&dataset, options);
    EXPECT_EQ(prefetcher.rounds().clocks_per_epoch(), 3);
    for (int64_t clock = first; clock < options.clocks; ++clock) {
      const int64_t steps = clock % 3 == 2 ? 1 : 3;
      for (int64_t k = 0; k < steps; ++k) {
        const auto batch = prefetcher.Next(Soon());
        ASSERT_TRUE(batch.ok()) << batch.status();
        const int64_t step = clock % 3 * 3 + k;
        EXPECT_THAT((*batch)->labels,
                    ElementsAreArray(plan.Indices(clock / 3, step)));
        // Four samples a step, but for the last, which has one: of rank 0.
        EXPECT_EQ((*batch)->first_in_step, 4 * k + (step < 6 ? 2 : 1));
      }
    }
    EXPECT_EQ(prefetcher.Next(Soon()).status().code(),
              absl::StatusCode::kOutOfRange);
  }
}

TEST(PrefetcherTest, ALaterStartReadsNothingBeforeIt) {
  CountingDataset dataset(100);
  Prefetcher::Options options = Plan(100, 1, 100);
  options.first_clock = 90;
  Prefetcher prefetcher(&dataset, options);
  for (int64_t clock = 90; clock < 100; ++clock) {
    ASSERT_TRUE(prefetcher.Next(Soon()).ok());
  }
  EXPECT_EQ(dataset.reads(), 10);
}

TEST(PrefetcherTest, SkippedBatchesAreNotGivenAndTheNextOnesAreTheirClocks) {
  CountingDataset dataset(25);
  const Prefetcher::Options options = Plan(25, 4, 20);
  Prefetcher prefetcher(&dataset, options);
  BatchPlan plan(options.plan);
  ASSERT_TRUE(prefetcher.Next(Soon()).ok());
  for (const int64_t clock : {1, 5, 6, 13, 19}) {
    prefetcher.SkipTo(clock);
    const auto batch = prefetcher.Next(Soon());
    ASSERT_TRUE(batch.ok()) << batch.status();
    EXPECT_THAT((*batch)->labels,
                ElementsAreArray(plan.Indices(clock / 7, clock % 7)))
        << clock;
  }
  EXPECT_EQ(prefetcher.Next(Soon()).status().code(),
            absl::StatusCode::kOutOfRange);
}

TEST(PrefetcherTest, AnotherShareBeginsWithTheNextStepWhateverWasReadAhead) {
  const CountingDataset dataset(100);
  Prefetcher::Options options = Plan(100, 8, 9);  // 5 steps an epoch
  options.plan.workers = 3;
  options.plan.rank = 2;
  for (int64_t from = 0; from < 9; ++from) {
    for (const bool waits : {true, false}) {
      SCOPED_TRACE(absl::StrCat("from clock ", from));
      Prefetcher prefetcher(&dataset, options);
      BatchPlan own(options.plan);
      BatchPlan shared(options.plan);
      shared.ShareAmong(2, 1);
      for (int64_t clock = 0; clock < 9; ++clock) {
        if (clock == from) {
          if (waits) {
            while (prefetcher.Peek() == nullptr) {
              absl::SleepFor(absl::Milliseconds(1));
            }
          }
          prefetcher.ShareAmong(clock, 2, 1);
        }
        BatchPlan& plan = clock < from ? own : shared;
        auto batch = prefetcher.Next(Soon());
        ASSERT_TRUE(batch.ok()) << batch.status();
        EXPECT_THAT((*batch)->labels,
                    ElementsAreArray(plan.Indices(clock / 5, clock % 5)));
        EXPECT_EQ((*batch)->first_in_step, plan.FirstInStep(clock % 5));
      }
    }
  }
}

TEST(PrefetcherTest, SkippingToTheEnd) {
  CountingDataset dataset(25);
  Prefetcher prefetcher(&dataset, Plan(25, 4, 20));
  prefetcher.SkipTo(20);
  EXPECT_EQ(prefetcher.Next(Soon()).status().code(),
            absl::StatusCode::kOutOfRange);
}

TEST(PrefetcherTest, ARankWithoutSamplesGetsEmptyBatches) {
  CountingDataset dataset(4);
  Prefetcher::Options options = Plan(4, 4, 2);
  options.plan.workers = 2;
  options.plan.rank = 1;
  Prefetcher prefetcher(&dataset, options);
  for (int i = 0; i < 2; ++i) {
    auto batch = prefetcher.Next(Soon());
    ASSERT_TRUE(batch.ok()) << batch.status();
    EXPECT_EQ((*batch)->size, 0);
  }
}

TEST(PrefetcherTest, ReadsAheadByItsDepthAndNoFurther) {
  CountingDataset dataset(100);
  Prefetcher::Options options = Plan(100, 1, 100);
  options.depth = 3;
  Prefetcher prefetcher(&dataset, options);
  // One slot more than the depth: the caller holds none yet.
  ASSERT_TRUE(dataset.AwaitReads(4));
  for (int64_t clock = 0; clock < 50; ++clock) {
    ASSERT_TRUE(prefetcher.Next(Soon()).ok());
    EXPECT_LE(dataset.reads(), clock + 1 + 3);
    ASSERT_TRUE(dataset.AwaitReads(clock + 1 + 3));
  }
}

TEST(PrefetcherTest, AWaitEndsAtItsDeadlineAndCanGoOn) {
  CountingDataset dataset(10);
  dataset.Hold(true);
  Prefetcher prefetcher(&dataset, Plan(10, 1, 10));
  ASSERT_TRUE(dataset.AwaitReads(1));
  const auto late = prefetcher.Next(absl::Now());
  EXPECT_EQ(late.status().code(), absl::StatusCode::kDeadlineExceeded);
  dataset.Hold(false);
  const auto batch = prefetcher.Next(Soon());
  ASSERT_TRUE(batch.ok()) << batch.status();
  BatchPlan plan(Plan(10, 1, 10).plan);
  EXPECT_EQ((*batch)->labels[0], plan.Indices(0, 0)[0]);
  EXPECT_GT(prefetcher.waited(), absl::ZeroDuration());
}

TEST(PrefetcherTest, DestroyedWhileTheReaderWaitsForASlot) {
  CountingDataset dataset(100);
  Prefetcher prefetcher(&dataset, Plan(100, 1, 100));
  ASSERT_TRUE(dataset.AwaitReads(3));
}

TEST(PrefetcherTest, DestroyedInTheMiddleOfARun) {
  CountingDataset dataset(1000);
  for (int taken = 0; taken < 20; ++taken) {
    Prefetcher prefetcher(&dataset, Plan(1000, 1, 1000));
    for (int i = 0; i < taken; ++i) ASSERT_TRUE(prefetcher.Next(Soon()).ok());
  }
}

TEST(PrefetcherTest, WithoutClocksThereIsNothing) {
  CountingDataset dataset(0);
  Prefetcher prefetcher(&dataset, Plan(0, 1, 0));
  EXPECT_EQ(prefetcher.Next(Soon()).status().code(),
            absl::StatusCode::kOutOfRange);
}

TEST(PrefetcherTest, PeekShowsWhatNextWillReturnAndTakesNothing) {
  CountingDataset dataset(40);
  dataset.Hold(true);
  Prefetcher prefetcher(&dataset, Plan(40, 8, 10));
  EXPECT_EQ(prefetcher.Peek(), nullptr) << "nothing has been read";
  dataset.Hold(false);
  for (int clock = 0; clock < 10; ++clock) {
    const auto batch = prefetcher.Next(Soon());
    ASSERT_TRUE(batch.ok());
    const std::vector<float> labels = (*batch)->labels;
    const Batch* peeked = prefetcher.Peek();
    while (peeked == nullptr && clock < 9) peeked = prefetcher.Peek();
    EXPECT_EQ(prefetcher.Peek(), peeked);
    EXPECT_EQ((*batch)->labels, labels) << "is still borrowed";
    if (clock == 9) {
      EXPECT_EQ(peeked, nullptr);
    } else {
      EXPECT_NE(peeked, *batch);
    }
  }
}

}  // namespace
}  // namespace syncline::worker
