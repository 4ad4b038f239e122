// Goal: every sample is seen exactly once per epoch, and the number of workers
// does not change which samples a step sees.
// Method: properties over small plans of all shapes, against the definition.

#include <algorithm>
#include <numeric>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/data/dataset.h"

namespace syncline::worker {
namespace {

using ::testing::ElementsAreArray;
using ::testing::IsEmpty;
using ::testing::Ne;

using Samples = std::vector<int64_t>;

// The samples that all ranks together see in a step, in rank order.
Samples Step(BatchPlan::Options options, int64_t epoch, int64_t step) {
  Samples all;
  for (options.rank = 0; options.rank < options.workers; ++options.rank) {
    BatchPlan plan(options);
    const auto part = plan.Indices(epoch, step);
    EXPECT_EQ(plan.FirstInStep(step), static_cast<int64_t>(all.size()));
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

Samples Epoch(const BatchPlan::Options& options, int64_t epoch) {
  Samples all;
  for (int64_t s = 0; s < BatchPlan(options).steps_per_epoch(); ++s) {
    const Samples step = Step(options, epoch, s);
    all.insert(all.end(), step.begin(), step.end());
  }
  return all;
}

Samples FileOrder(int64_t count) {
  Samples order(count);
  std::iota(order.begin(), order.end(), int64_t{0});
  return order;
}

TEST(BatchPlanTest, EverySampleExactlyOncePerEpoch) {
  for (const int64_t count : {1, 2, 7, 24, 25, 100, 101}) {
    for (const uint32_t workers : {1, 2, 3, 5}) {
      for (const int64_t batch : {1, 2, 8, 33}) {
        SCOPED_TRACE(
            absl::StrCat(count, " samples, ", workers, " workers x ", batch));
        Samples seen = Epoch({.sample_count = count,
                              .batch_size = batch,
                              .workers = workers,
                              .seed = 5},
                             2);
        std::sort(seen.begin(), seen.end());
        EXPECT_EQ(seen, FileOrder(count));
      }
    }
  }
}

// The job goes on with another number of workers at any step, and back.
TEST(BatchPlanTest, AGlobalBatchIsTheSameWithAnyNumberOfWorkers) {
  std::vector<uint8_t> buckets(50);
  for (size_t i = 0; i < buckets.size(); ++i) buckets[i] = i % 3 == 0 ? 1 : 0;
  for (const bool bucketed : {false, true}) {
    for (const int64_t global : {5, 7, 12}) {
      BatchPlan::Options options = {.sample_count = 50,
                                    .batch_size = 4,
                                    .global_batch = global,
                                    .workers = 3,
                                    .seed = 5};
      if (bucketed) options.buckets = buckets;
      const int64_t steps = BatchPlan(options).steps_per_epoch();
      for (int64_t epoch = 0; epoch < 2; ++epoch) {
        const Samples expected = Epoch(options, epoch);
        Samples sorted = expected;
        std::sort(sorted.begin(), sorted.end());
        EXPECT_THAT(sorted, ElementsAreArray(FileOrder(50)));
        Samples seen;
        for (int64_t s = 0; s < steps; ++s) {
          BatchPlan::Options now = options;
          now.workers = static_cast<uint32_t>(1 + (s * 7 + epoch) % 5);
          ASSERT_EQ(BatchPlan(now).steps_per_epoch(), steps);
          const Samples step = Step(now, epoch, s);
          seen.insert(seen.end(), step.begin(), step.end());
          // Shares differ by one at most.
          size_t least = step.size();
          size_t most = 0;
          for (now.rank = 0; now.rank < now.workers; ++now.rank) {
            const size_t share = BatchPlan(now).Indices(epoch, s).size();
            least = std::min(least, share);
            most = std::max(most, share);
          }
          EXPECT_LE(most - least, 1u);
        }
        EXPECT_THAT(seen, ElementsAreArray(expected));
      }
    }
  }
}

TEST(BatchPlanTest, WorkersSeeStepByStepWhatOneWorkerWithTheirBatchesSees) {
  const BatchPlan::Options many = {.sample_count = 1000,
                                   .batch_size = 32,
                                   .workers = 3,
                                   .shuffle = true,
                                   .seed = 11};
  BatchPlan::Options one = many;
  one.batch_size = 96;
  one.workers = 1;
  BatchPlan alone(one);
  ASSERT_EQ(alone.steps_per_epoch(), BatchPlan(many).steps_per_epoch());
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    for (int64_t step = 0; step < alone.steps_per_epoch(); ++step) {
      EXPECT_THAT(Step(many, epoch, step),
                  ElementsAreArray(alone.Indices(epoch, step)));
    }
  }
}

TEST(BatchPlanTest, OthersShareTheSamplesOfAStepOnceARankHasLeft) {
  for (const int64_t global_batch : {0, 30}) {
    const BatchPlan::Options options = {.sample_count = 95,
                                        .batch_size = 10,
                                        .global_batch = global_batch,
                                        .workers = 3,
                                        .seed = 5};
    for (int64_t step = 0; step < 4; ++step) {
      SCOPED_TRACE(absl::StrCat(global_batch, ", step ", step));
      const Samples before = Step(options, 1, step);
      Samples all;
      for (const uint32_t rank : {0, 2}) {  // 1 has left
        BatchPlan::Options own = options;
        own.rank = rank;
        BatchPlan plan(own);
        plan.ShareAmong(2, rank / 2);
        EXPECT_EQ(plan.steps_per_epoch(), 4);
        const auto part = plan.Indices(1, step);
        EXPECT_EQ(plan.FirstInStep(step), static_cast<int64_t>(all.size()));
        all.insert(all.end(), part.begin(), part.end());
      }
      EXPECT_EQ(all, before);
    }
  }
}

TEST(BatchPlanTest, LastStepIsCutInRankOrder) {
  // 10 samples, 3 x 4 per step: 4, 4, 2.
  BatchPlan::Options options = {
      .sample_count = 10, .batch_size = 4, .workers = 3, .shuffle = false};
  EXPECT_EQ(BatchPlan(options).steps_per_epoch(), 1);
  const std::vector<Samples> expected = {{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9}};
  for (options.rank = 0; options.rank < 3; ++options.rank) {
    EXPECT_THAT(BatchPlan(options).Indices(0, 0),
                ElementsAreArray(expected[options.rank]));
  }
  options.sample_count = 4;
  options.rank = 2;
  EXPECT_THAT(BatchPlan(options).Indices(0, 0), IsEmpty());
}

TEST(BatchPlanTest, StepsPerEpochRoundUp) {
  const auto steps = [](int64_t count, uint32_t workers, int64_t batch) {
    return BatchPlan(
               {.sample_count = count, .batch_size = batch, .workers = workers})
        .steps_per_epoch();
  };
  EXPECT_EQ(steps(96, 3, 32), 1);
  EXPECT_EQ(steps(97, 3, 32), 2);
  EXPECT_EQ(steps(95, 3, 32), 1);
  EXPECT_EQ(steps(0, 3, 32), 0);
}

TEST(BatchPlanTest, OrderDependsOnSeedAndEpochAlone) {
  const BatchPlan::Options options = {
      .sample_count = 500, .batch_size = 10, .workers = 1, .seed = 3};
  BatchPlan::Options other_seed = options;
  other_seed.seed = 4;
  EXPECT_EQ(Epoch(options, 1), Epoch(options, 1));
  EXPECT_THAT(Epoch(options, 2), Ne(Epoch(options, 1)));
  EXPECT_THAT(Epoch(other_seed, 1), Ne(Epoch(options, 1)));
  EXPECT_THAT(Epoch(options, 0), Ne(FileOrder(500)));

  // Neither on which epochs and steps were asked for before.
  BatchPlan jumping(options);
  jumping.Indices(7, 3);
  jumping.Indices(0, 0);
  BatchPlan direct(options);
  const auto expected = direct.Indices(1, 4);
  EXPECT_THAT(jumping.Indices(1, 4), ElementsAreArray(expected));
}

TEST(BatchPlanTest, WithoutShuffleEveryEpochIsInFileOrder) {
  const BatchPlan::Options options = {
      .sample_count = 20, .batch_size = 3, .workers = 2, .shuffle = false};
  EXPECT_EQ(Epoch(options, 0), FileOrder(20));
  EXPECT_EQ(Epoch(options, 5), FileOrder(20));
}

// A shuffle that leaves samples near their place would pass the tests above.
TEST(BatchPlanTest, ShuffleMovesSamplesAnywhere) {
  constexpr int64_t kCount = 5;
  std::vector<std::vector<int>> hits(kCount, std::vector<int>(kCount, 0));
  const int kEpochs = 5000;
  BatchPlan plan({.sample_count = kCount, .batch_size = kCount, .seed = 1});
  for (int64_t epoch = 0; epoch < kEpochs; ++epoch) {
    const auto order = plan.Indices(epoch, 0);
    for (int64_t i = 0; i < kCount; ++i) ++hits[order[i]][i];
  }
  for (const auto& row : hits) {
    for (const int count : row) {
      // Expected 1000, deviation 28; the seed is fixed.
      EXPECT_NEAR(count, kEpochs / kCount, 150);
    }
  }
}

// --- Windows ---

constexpr int64_t kPiece = BatchPlan::kPieceSamples;

BatchPlan::Options Windowed(int64_t count, int64_t window) {
  return {.sample_count = count,
          .batch_size = 500,
          .workers = 3,
          .seed = 4,
          .window_samples = window};
}

// In order, by every rank's own plan, which goes on from step to step.
Samples WindowedEpoch(const BatchPlan::Options& options, int64_t epoch) {
  std::vector<BatchPlan> plans;
  for (uint32_t rank = 0; rank < options.workers; ++rank) {
    BatchPlan::Options of_rank = options;
    of_rank.rank = rank;
    plans.emplace_back(of_rank);
  }
  Samples all;
  for (int64_t step = 0; step < plans[0].steps_per_epoch(); ++step) {
    for (BatchPlan& plan : plans) {
      const auto part = plan.Indices(epoch, step);
      all.insert(all.end(), part.begin(), part.end());
    }
  }
  return all;
}

TEST(BatchPlanTest, WindowsTooShowEverySampleOncePerEpoch) {
  for (const int64_t count :
       {int64_t{10}, kPiece, 5 * kPiece, 7 * kPiece + 1, 9 * kPiece - 1}) {
    for (const int64_t window : {int64_t{1}, 2 * kPiece, 100 * kPiece}) {
      SCOPED_TRACE(absl::StrCat(count, " samples, windows of ", window));
      const auto options = Windowed(count, window);
      Samples seen = WindowedEpoch(options, 1);
      EXPECT_EQ(seen, WindowedEpoch(options, 1)) << "the seed decides";
      if (count > 100) {
        EXPECT_NE(seen, WindowedEpoch(options, 2));
        EXPECT_NE(seen, FileOrder(count));
      }
      BatchPlan::Options one = options;
      one.workers = 1;
      one.batch_size = 1500;
      EXPECT_EQ(seen, WindowedEpoch(one, 1)) << "whoever shares the work";
      std::sort(seen.begin(), seen.end());
      EXPECT_EQ(seen, FileOrder(count));
    }
  }
}

TEST(BatchPlanTest, AWindowReadsFewPieces) {
  constexpr int64_t kWindow = 2 * kPiece;
  const Samples seen = WindowedEpoch(Windowed(11 * kPiece + 5, kWindow), 0);
  std::set<int64_t> first_pieces;
  for (size_t begin = 0; begin < seen.size(); begin += kWindow) {
    std::set<int64_t> pieces;
    const size_t end = std::min<size_t>(seen.size(), begin + kWindow);
    for (size_t i = begin; i < end; ++i) pieces.insert(seen[i] / kPiece);
    EXPECT_LE(pieces.size(), 2u);
    first_pieces.insert(*pieces.begin());
    // Not one piece after the other.
    if (end - begin == kWindow) {
      std::set<int64_t> half;
      for (size_t i = begin; i < begin + 100; ++i)
        half.insert(seen[i] / kPiece);
      EXPECT_EQ(half.size(), 2u);
    }
  }
  EXPECT_EQ(first_pieces.size(), 6u);
}

TEST(BatchPlanTest, WhatWillBeReadIsSaidAWindowAheadAndWhatWasReadOnce) {
  auto options = Windowed(9 * kPiece + 5, 2 * kPiece);
  options.rank = 1;
  BatchPlan plan(options);
  std::set<int64_t> soon;
  std::set<int64_t> past;
  for (int64_t epoch = 0; epoch < 2; ++epoch) {
    for (int64_t step = 0; step < plan.steps_per_epoch(); ++step) {
      const auto samples = plan.Indices(epoch, step);
      const BatchPlan::Moves moves = plan.TakeMoves();
      for (const SampleRange& range : moves.past) {
        EXPECT_TRUE(past.insert(range.first).second);
      }
      if (step == 0) {
        EXPECT_EQ(past.size(), epoch == 0 ? 0u : 10u) << "the whole epoch";
        soon.clear();
        past.clear();
      }
      for (const SampleRange& range : moves.soon) {
        EXPECT_TRUE(soon.insert(range.first).second);
      }
      for (const int64_t sample : samples) {
        EXPECT_TRUE(soon.contains(sample / kPiece * kPiece));
      }
    }
    EXPECT_EQ(soon.size(), 10u);
  }
}

// As with leased data: steps are left out, some of them with whole windows.
TEST(BatchPlanTest, WhatIsLeftOutIsPastToo) {
  BatchPlan plan({.sample_count = 10 * kPiece,
                  .batch_size = 100,
                  .seed = 5,
                  .window_samples = kPiece});
  std::set<int64_t> soon;
  std::set<int64_t> past;
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    for (int64_t step = epoch; step < plan.steps_per_epoch();
         step += step % 7 == 0 ? 90 : 1) {
      plan.Indices(epoch, step);
      const BatchPlan::Moves moves = plan.TakeMoves();
      for (const SampleRange& range : moves.past) past.insert(range.first);
      if (step == epoch && epoch > 0) {
        EXPECT_EQ(past, soon) << "the whole epoch before";
        soon.clear();
        past.clear();
      }
      for (const SampleRange& range : moves.soon) {
        EXPECT_TRUE(soon.insert(range.first).second);
      }
    }
  }
}

// ---- Buckets ----

// Many short samples, few long ones.
std::vector<uint8_t> SkewedBuckets(int64_t count) {
  std::vector<uint8_t> buckets;
  for (int64_t i = 0; i < count; ++i) {
    buckets.push_back(i % 7 == 0 ? 3 : i % 3 == 0 ? 1 : 0);
  }
  return buckets;
}

TEST(BatchPlanTest, AStepIsOfOneBucketAndEverySampleInOneStep) {
  for (const int64_t count : {1, 7, 24, 101}) {
    const std::vector<uint8_t> buckets = SkewedBuckets(count);
    for (const uint32_t workers : {1, 2, 5}) {
      for (const bool shuffle : {false, true}) {
        SCOPED_TRACE(absl::StrCat(count, " samples, ", workers, " workers"));
        const BatchPlan::Options options = {.sample_count = count,
                                            .batch_size = 3,
                                            .workers = workers,
                                            .shuffle = shuffle,
                                            .seed = 5,
                                            .buckets = buckets};
        int short_steps = 0;
        Samples seen;
        for (int64_t s = 0; s < BatchPlan(options).steps_per_epoch(); ++s) {
          const Samples step = Step(options, 2, s);
          ASSERT_THAT(step, Ne(Samples()));
          for (const int64_t i : step) EXPECT_EQ(buckets[i], buckets[step[0]]);
          short_steps += step.size() < 3 * workers;
          seen.insert(seen.end(), step.begin(), step.end());
        }
        EXPECT_LE(short_steps, 3);
        std::sort(seen.begin(), seen.end());
        EXPECT_EQ(seen, FileOrder(count));
      }
    }
  }
}

TEST(BatchPlanTest, WithBucketsTooOnlyTheSamplesOfAStepMatter) {
  const std::vector<uint8_t> buckets = SkewedBuckets(101);
  BatchPlan::Options one = {
      .sample_count = 101, .batch_size = 12, .seed = 9, .buckets = buckets};
  BatchPlan::Options four = one;
  four.batch_size = 3;
  four.workers = 4;
  const int64_t steps = BatchPlan(one).steps_per_epoch();
  ASSERT_EQ(BatchPlan(four).steps_per_epoch(), steps);
  for (const int64_t epoch : {0, 3}) {
    for (int64_t s = 0; s < steps; ++s) {
      EXPECT_EQ(Step(one, epoch, s), Step(four, epoch, s));
    }
  }
}

// The samples of one bucket, in the order in which an epoch has them.
Samples OfBucket(const BatchPlan::Options& options, int64_t epoch, int bucket) {
  Samples all = Epoch(options, epoch);
  all.erase(
      std::remove_if(all.begin(), all.end(),
                     [&](int64_t i) { return options.buckets[i] != bucket; }),
      all.end());
  return all;
}

TEST(BatchPlanTest, TheOrderOfABucketDependsOnSeedAndEpochAlone) {
  const std::vector<uint8_t> buckets = SkewedBuckets(101);
  const BatchPlan::Options plain = {
      .sample_count = 101, .batch_size = 5, .seed = 9};
  BatchPlan::Options options = plain;
  options.buckets = buckets;
  const Samples order = OfBucket(options, 1, 0);
  BatchPlan::Options others = options;
  others.batch_size = 2;
  others.workers = 3;
  EXPECT_EQ(OfBucket(others, 1, 0), order);
  EXPECT_NE(OfBucket(options, 2, 0), order);
  // The order is that of the epoch without buckets.
  Samples all = Epoch(plain, 1);
  all.erase(std::remove_if(all.begin(), all.end(),
                           [&](int64_t i) { return buckets[i] != 0; }),
            all.end());
  EXPECT_EQ(all, order);
  // A plan that goes back gives the same again.
  BatchPlan plan(options);
  const auto first = plan.Indices(1, 0);
  const Samples before(first.begin(), first.end());
  plan.Indices(2, 4);
  EXPECT_THAT(plan.Indices(1, 0), ElementsAreArray(before));
}

}  // namespace
}  // namespace syncline::worker
