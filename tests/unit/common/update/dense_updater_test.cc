// Goal: gradients are folded in rank order whatever the order of arrival, and
// applied as the optimizer says, over blocks larger and smaller than a piece.
// Method: bitwise comparison with a serial fold and one call of the optimizer.

#include "common/update/dense_updater.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "common/base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/fakes/floats.h"

namespace syncline {
namespace {

std::shared_ptr<const VectorFloats> RandomValues(uint64_t seed, size_t count) {
  Random random(seed);
  std::vector<float> values(count);
  for (float& value : values) {
    value = static_cast<float>(random.Normal() * std::exp2(random.Below(20)));
  }
  return std::make_shared<VectorFloats>(std::move(values));
}

constexpr size_t kCounts[] = {1, 10, DenseUpdater::kPieceElements,
                              3 * DenseUpdater::kPieceElements + 5};

DenseUpdater::Options Adam() {
  DenseUpdater::Options options;
  options.optimizer.kind = OptimizerKind::kAdam;
  options.optimizer.weight_decay = 0.01f;
  options.rule.learning_rate.base = 0.1;
  return options;
}

TEST(DenseUpdaterTest, MakingResidentCanBeStopped) {
  // It is asked before each 64 MiB.
  const std::vector<size_t> counts(160, size_t{1} << 18);
  DenseUpdater::Options options;
  options.optimizer.kind = OptimizerKind::kSgd;
  DenseUpdater updater(options, counts);
  int asked = 0;
  EXPECT_EQ(updater.MakeResident([&] {
    return ++asked < 3 ? absl::OkStatus() : absl::CancelledError("stopped");
  }),
            absl::CancelledError("stopped"));
  EXPECT_EQ(asked, 3);
  EXPECT_EQ(updater.MakeResident(nullptr), absl::OkStatus());
}

TEST(DenseUpdaterTest, InitTakesValuesFromAnyOffset) {
  DenseUpdater updater(Adam(), kCounts);
  const auto source = RandomValues(1, 100);
  updater.Init(1, *source, 7);
  EXPECT_TRUE(std::equal(updater.values(1).begin(), updater.values(1).end(),
                         source->get().begin() + 7));
  EXPECT_EQ(updater.values(0)[0], 0.0f);
}

TEST(DenseUpdaterTest, FoldsInRankOrderWhateverTheOrderOfArrival) {
  DenseUpdater::Scratch scratch;
  for (uint32_t block = 0; block < 4; ++block) {
    const size_t count = kCounts[block];
    std::vector<std::shared_ptr<const VectorFloats>> gradients;
    for (uint64_t rank = 0; rank < 4; ++rank) {
      gradients.push_back(RandomValues(10 + rank, count));
    }
    std::vector<float> sum = gradients[0]->get();
    for (int rank = 1; rank < 4; ++rank) {
      AddTo(gradients[rank]->get().data(), sum.data(), count);
    }
    std::vector<float> value(count), slot0(count), slot1(count);
    float* const slots[] = {slot0.data(), slot1.data()};
    ApplyOptimizer(Adam().optimizer,
                   {.learning_rate = 0.1f, .gradient_scale = 1.0f / 48, .t = 1},
                   sum.data(), value.data(), slots, count);

    uint32_t order[] = {0, 1, 2, 3};
    do {
      DenseUpdater updater(Adam(), kCounts);
      for (const uint32_t rank : order) {
        updater.BufferGradient(block, rank, gradients[rank], 0);
      }
      updater.Apply(block, 0, 48, -1, &scratch);
      ASSERT_TRUE(std::equal(value.begin(), value.end(),
                             updater.values(block).begin()));
    } while (std::next_permutation(std::begin(order), std::end(order)));
  }
}

TEST(DenseUpdaterTest, LetsGoOfGradientsOnceApplied) {
  DenseUpdater updater(Adam(), kCounts);
  DenseUpdater::Scratch scratch;
  const auto gradient = RandomValues(3, kCounts[3]);
  updater.BufferGradient(3, 0, gradient, 0);
  EXPECT_EQ(gradient.use_count(), 2);
  updater.Apply(3, 0, 1, -1, &scratch);
  EXPECT_EQ(gradient.use_count(), 1);
  updater.BufferGradient(3, 0, gradient, 0);
  updater.ReduceGradients(3, 1, &scratch);
  EXPECT_EQ(gradient.use_count(), 1);
}

// An owner sums, and others apply the sum as the gradient of one rank.
TEST(DenseUpdaterTest, ASumThatIsHandedOnIsAppliedWithTheSameBits) {
  DenseUpdater::Options options = Adam();
  DenseUpdater::Scratch scratch;
  for (const auto policy : {OnNonFinite::kFailJob, OnNonFinite::kDropBlock}) {
    options.on_non_finite = policy;
    std::vector<float> bad = RandomValues(23, kCounts[3])->get();
    if (policy == OnNonFinite::kDropBlock) bad[7] = INFINITY;
    const std::shared_ptr<const VectorFloats> gradients[] = {
        RandomValues(21, kCounts[3]), RandomValues(22, kCounts[3]),
        std::make_shared<VectorFloats>(std::move(bad))};
    DenseUpdater alone(options, kCounts);
    DenseUpdater owner(options, kCounts);
    DenseUpdater other(options, kCounts);
    for (int64_t clock = 0; clock < 3; ++clock) {
      for (uint32_t rank = 0; rank < 3; ++rank) {
        alone.BufferGradient(3, rank, gradients[rank], 0, 8);
        owner.BufferGradient(3, rank, gradients[rank], 0, 8);
      }
      alone.Apply(3, clock, 24, -1, &scratch);
      owner.SumGradients(3, 24, &scratch);
      const bool drops = policy == OnNonFinite::kDropBlock;
      EXPECT_EQ(scratch.non_finite.size(), drops ? 1u : 0u);
      EXPECT_EQ(owner.reduced_samples(3), drops ? 16u : 24u);
      owner.Apply(3, clock, 24, -1, &scratch);
      const absl::Span<const float> sum = owner.reduced(3);
      other.BufferGradient(3, 0,
                           std::make_shared<VectorFloats>(
                               std::vector<float>(sum.begin(), sum.end())),
                           0);
      other.Apply(3, clock, owner.reduced_samples(3), -1, &scratch);
      ASSERT_EQ(alone.values(3), owner.values(3));
      ASSERT_EQ(alone.values(3), other.values(3));
    }
  }
}

TEST(DenseUpdaterTest, AdamCountsTheUpdatesOfEachBlock) {
  DenseUpdater updater(Adam(), kCounts);
  DenseUpdater::Scratch scratch;
  const auto gradient =
      std::make_shared<VectorFloats>(std::vector<float>(10, 1.0f));
  // Bias-corrected, each step with a constant gradient is the learning rate
  // (less a little decay); with a t shared by all blocks it would not be.
  for (int i = 0; i < 5; ++i) {
    updater.BufferGradient(0, 0, gradient, 0);
    updater.Apply(0, i, 1, -1, &scratch);
  }
  updater.BufferGradient(1, 0, gradient, 0);
  updater.Apply(1, 5, 1, -1, &scratch);
  EXPECT_NEAR(updater.values(0)[0], -0.5, 1e-3);
  EXPECT_NEAR(updater.values(1)[9], -0.1, 1e-4);
}

TEST(DenseUpdaterTest, AClippedNormScalesTheMean) {
  DenseUpdater::Options options;
  options.rule.learning_rate.base = 1;
  options.rule.clip_norm = 2;
  DenseUpdater::Scratch scratch;
  const auto gradient =
      std::make_shared<VectorFloats>(std::vector<float>(10, 8.0f));
  for (const bool folded : {false, true}) {
    DenseUpdater updater(options, kCounts);
    const auto step = [&](double squared_norm) {
      const float before = updater.values(1)[0];
      updater.BufferGradient(1, 0, gradient, 0);
      if (folded) {
        EXPECT_EQ(updater.ReduceGradients(1, 4, &scratch), 10 * 2.0 * 2.0);
      }
      updater.Apply(1, 0, 4, squared_norm, &scratch);
      return before - updater.values(1)[0];
    };
    EXPECT_EQ(step(-1), 2.0f);    // unknown: not clipped
    EXPECT_EQ(step(4.0), 2.0f);   // at the limit
    EXPECT_EQ(step(64.0), 0.5f);  // four times too large
  }
}

TEST(DenseUpdaterTest, TheLearningRateIsThatOfTheClock) {
  DenseUpdater::Options options;
  options.rule.learning_rate = {.schedule = LearningRate::Schedule::kStep,
                                .base = 1,
                                .step_clocks = 10,
                                .gamma = 0.5};
  DenseUpdater updater(options, kCounts);
  DenseUpdater::Scratch scratch;
  updater.BufferGradient(
      0, 0, std::make_shared<VectorFloats>(std::vector<float>{4.0f}), 0);
  updater.Apply(0, 25, 1, -1, &scratch);
  EXPECT_EQ(updater.values(0)[0], -1.0f);
}

TEST(DenseUpdaterTest, AdagradStartsFromItsAccumulator) {
  DenseUpdater::Options options;
  options.optimizer = {
      .kind = OptimizerKind::kAdagrad, .epsilon = 0, .initial_accumulator = 7};
  options.rule.learning_rate.base = 1;
  DenseUpdater updater(options, kCounts);
  DenseUpdater::Scratch scratch;
  updater.BufferGradient(
      0, 0, std::make_shared<VectorFloats>(std::vector<float>{3.0f}), 0);
  updater.Apply(0, 0, 1, -1, &scratch);
  EXPECT_EQ(updater.values(0)[0], -0.75f);  // 3 / sqrt(7 + 9)
}

TEST(DenseUpdaterTest, ThreeSlotsLieBehindTheValues) {
  DenseUpdater::Options options;
  options.optimizer = {.kind = OptimizerKind::kRmsProp,
                       .momentum = 0.9f,
                       .decay = 0.9f,
                       .centered = true};
  options.rule.learning_rate.base = 0.01;
  DenseUpdater updater(options, kCounts);
  DenseUpdater::Scratch scratch;
  const size_t count = kCounts[3];
  std::vector<float> value(count), squares(count), means(count), moved(count);
  float* const slots[] = {squares.data(), means.data(), moved.data()};
  for (int clock = 0; clock < 3; ++clock) {
    const auto gradient = RandomValues(40 + clock, count);
    ApplyOptimizer(options.optimizer, {.learning_rate = 0.01f},
                   gradient->get().data(), value.data(), slots, count);
    updater.BufferGradient(3, 0, gradient, 0);
    updater.Apply(3, clock, 1, -1, &scratch);
  }
  EXPECT_TRUE(
      std::equal(value.begin(), value.end(), updater.values(3).begin()));
  EXPECT_EQ(updater.slot_bytes(), 3 * updater.value_bytes());
  const uint64_t bytes = DenseUpdater::MemoryBytes(options.optimizer, kCounts,
                                                   /*with_reduced=*/false);
  EXPECT_GE(bytes, 4 * updater.value_bytes());
  EXPECT_GE(DenseUpdater::MemoryBytes(options.optimizer, kCounts, true),
            bytes + updater.value_bytes());
}

TEST(DenseUpdaterTest, LambsHalvesAreTheKernels) {
  DenseUpdater::Options options;
  options.optimizer = {.kind = OptimizerKind::kLamb, .weight_decay = 0.1f};
  options.rule.learning_rate.base = 0.1;
  const size_t count = kCounts[3];
  const auto initial = RandomValues(5, count);
  for (const bool folded : {false, true}) {
    DenseUpdater updater(options, kCounts);
    DenseUpdater::Scratch scratch;
    updater.Init(3, *initial, 0);
    std::vector<float> value = initial->get();
    std::vector<float> first(count), second(count);
    for (int clock = 0; clock < 3; ++clock) {
      const auto gradient = RandomValues(60 + clock, count);
      OptimizerStep step = {
          .learning_rate = 0.1f, .gradient_scale = 0.25f, .t = clock + 1};
      LambNorms expected;
      AdvanceLamb(options.optimizer, step, gradient->get().data(), value.data(),
                  first.data(), second.data(), count, &expected);
      ApplyLamb(options.optimizer, step, 0.5, value.data(), first.data(),
                second.data(), count);
      updater.BufferGradient(3, 0, gradient, 0);
      if (folded) updater.ReduceGradients(3, 4, &scratch);
      const LambNorms norms = updater.ComputeLambUpdate(3, 4, -1, &scratch);
      EXPECT_EQ(norms.value, expected.value);
      EXPECT_EQ(norms.update, expected.update);
      EXPECT_EQ(gradient.use_count(), 1);
      updater.ApplyLambUpdate(3, clock, 0.5);
    }
    EXPECT_TRUE(
        std::equal(value.begin(), value.end(), updater.values(3).begin()));
  }
}

// Three workers' gradients of 8 elements, of 1, 2 and 4 samples; `bad` of rank
// 1 is not finite.
class NonFiniteBlock {
 public:
  explicit NonFiniteBlock(OnNonFinite policy, float bad)
      : updater_(MakeOptions(policy), kOne) {
    for (uint32_t rank = 0; rank < 3; ++rank) {
      std::vector<float> values(8, 1.0f + rank);
      if (rank == 1) values[5] = bad;
      updater_.BufferGradient(0, rank, std::make_shared<VectorFloats>(values),
                              0, 1 << rank);
    }
  }
  float value(size_t i) { return updater_.values(0)[i]; }
  DenseUpdater updater_;
  DenseUpdater::Scratch scratch_;

 private:
  static constexpr size_t kOne[] = {8};
  static DenseUpdater::Options MakeOptions(OnNonFinite policy) {
    DenseUpdater::Options options;
    options.rule.learning_rate.base = 1;
    options.on_non_finite = policy;
    return options;
  }
};

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Steps that may be skipped have a norm too.
TEST(DenseUpdaterTest, ANormThatIsNotClippedScalesNothing) {
  DenseUpdater::Options options;
  options.rule.learning_rate.base = 1;
  DenseUpdater updater(options, kCounts);
  DenseUpdater::Scratch scratch;
  updater.BufferGradient(
      1, 0, std::make_shared<VectorFloats>(std::vector<float>(10, 8.0f)), 0);
  updater.Apply(1, 0, 4, 40, &scratch);
  EXPECT_EQ(updater.values(1)[0], -2.0f);
}

TEST(DenseUpdaterTest, AGradientThatIsNotFiniteIsNamed) {
  for (const auto policy : {OnNonFinite::kFailJob, OnNonFinite::kSkipStep,
                            OnNonFinite::kDropBlock}) {
    for (const float bad : {kNan, kInfinity, -kInfinity}) {
      for (const bool folded : {false, true}) {
        NonFiniteBlock block(policy, bad);
        if (folded) {
          block.updater_.ReduceGradients(0, 7, &block.scratch_);
        } else {
          block.updater_.Apply(0, 0, 7, -1, &block.scratch_);
        }
        ASSERT_EQ(block.scratch_.non_finite.size(), 1u);
        EXPECT_EQ(block.scratch_.non_finite[0].rank, 1u);
        EXPECT_EQ(block.scratch_.non_finite[0].element, 5u);
      }
    }
  }
}

TEST(DenseUpdaterTest, WhatIsDroppedTakesItsSamplesAlong) {
  for (const bool folded : {false, true}) {
    NonFiniteBlock block(OnNonFinite::kDropBlock, kNan);
    if (folded) {
      // (1 + 3) / (1 + 4), eight times.
      EXPECT_NEAR(block.updater_.ReduceGradients(0, 7, &block.scratch_),
                  8 * 0.64, 1e-6);
    }
    block.updater_.Apply(0, 0, 7, -1, &block.scratch_);
    EXPECT_EQ(block.value(0), -4 * (1 / 5.0f));
    EXPECT_EQ(block.value(5), block.value(0));
  }
}

TEST(DenseUpdaterTest, ABlockThatNothingIsLeftOfStaysAsItIs) {
  DenseUpdater::Options options = Adam();
  options.on_non_finite = OnNonFinite::kDropBlock;
  DenseUpdater updater(options, kCounts);
  DenseUpdater::Scratch scratch;
  updater.Init(1, *RandomValues(1, 10), 0);
  const std::vector<float> before(updater.values(1).begin(),
                                  updater.values(1).end());
  const auto bad =
      std::make_shared<VectorFloats>(std::vector<float>(10, kInfinity));
  for (const bool folded : {false, true}) {
    updater.BufferGradient(1, 0, bad, 0, 4);
    if (folded) {
      EXPECT_EQ(updater.ReduceGradients(1, 4, &scratch), 0);
    }
    updater.Apply(1, 0, 4, -1, &scratch);
    EXPECT_EQ(bad.use_count(), 1);
    EXPECT_TRUE(
        std::equal(before.begin(), before.end(), updater.values(1).begin()));
  }
}

TEST(DenseUpdaterTest, ASumThatOverflowsIsNobodysFault) {
  DenseUpdater::Options options;
  options.on_non_finite = OnNonFinite::kDropBlock;
  DenseUpdater updater(options, kCounts);
  DenseUpdater::Scratch scratch;
  const auto large =
      std::make_shared<VectorFloats>(std::vector<float>(10, 3e38f));
  updater.BufferGradient(1, 0, large, 0, 4);
  updater.BufferGradient(1, 1, large, 0, 4);
  updater.Apply(1, 0, 8, -1, &scratch);
  ASSERT_EQ(scratch.non_finite.size(), 1u);
  EXPECT_EQ(scratch.non_finite[0].rank, DenseUpdater::NonFinite::kSum);
  EXPECT_EQ(updater.values(1)[0], 0.0f);
}

TEST(DenseUpdaterTest, ASkippedStepsNormIsNotFinite) {
  NonFiniteBlock block(OnNonFinite::kSkipStep, kInfinity);
  EXPECT_FALSE(
      std::isfinite(block.updater_.ReduceGradients(0, 7, &block.scratch_)));
  block.updater_.DropGradients(0);
  EXPECT_EQ(block.value(0), 0.0f);
  block.updater_.BufferGradient(
      0, 0, std::make_shared<VectorFloats>(std::vector<float>(8, 2)), 0, 1);
  block.updater_.Apply(0, 1, 1, -1, &block.scratch_);
  EXPECT_EQ(block.value(0), -2.0f) << "nothing is left of what was dropped";
}

TEST(DenseUpdaterTest, OneRanksGradientIsDroppedAlone) {
  const std::vector<size_t> counts = {8};
  DenseUpdater updater({}, counts);
  DenseUpdater::Scratch scratch;
  const auto ones = std::make_shared<VectorFloats>(std::vector<float>(8, 1));
  const auto sevens = std::make_shared<VectorFloats>(std::vector<float>(8, 7));
  updater.BufferGradient(0, 0, ones, 0, 1);
  updater.BufferGradient(0, 1, sevens, 0, 1);
  updater.BufferGradient(0, 2, ones, 0, 1);
  updater.DropGradientOf(0, 1);
  updater.DropGradientOf(0, 1);  // there is none left
  EXPECT_EQ(sevens.use_count(), 1) << "its memory is free";
  EXPECT_FALSE(updater.IsSettled(0));
  EXPECT_GT(updater.ReduceGradients(0, 2, &scratch), 0);
  EXPECT_EQ(updater.reduced(0)[0], 2.0f);
}

// 0.75 of the value and a quarter of the mean, of two samples and of six.
TEST(DenseUpdaterTest, ARunningMeanKnowsNoOptimizer) {
  const auto of = [](float v) {
    return std::make_shared<VectorFloats>(std::vector<float>(10, v));
  };
  for (const auto kind :
       {OptimizerKind::kAdam, OptimizerKind::kFtrl, OptimizerKind::kLamb}) {
    for (const bool folded : {false, true}) {
      DenseUpdater::Options options = Adam();
      options.optimizer.kind = kind;
      options.optimizer.clip_value = 0.1f;
      options.rule.clip_norm = 0.1;
      DenseUpdater updater(options, kCounts);
      DenseUpdater::Scratch scratch;
      updater.MakeRunningMean(1, 0.75f);
      updater.Init(1, *of(8), 0);
      updater.BufferGradient(1, 1, of(12), 0, 6);
      updater.BufferGradient(1, 0, of(20), 0, 2);
      const double norm = folded ? updater.ReduceGradients(1, 8, &scratch) : 0;
      EXPECT_EQ(norm, 0);
      if (kind == OptimizerKind::kLamb) {
        const LambNorms norms = updater.ComputeLambUpdate(1, 8, 100, &scratch);
        EXPECT_EQ(norms.value, 0);
        EXPECT_EQ(norms.update, 0);
        updater.ApplyLambUpdate(1, 0, 1);
      } else {
        updater.Apply(1, 0, 8, 100, &scratch);
      }
      EXPECT_THAT(updater.values(1), ::testing::Each(7.0f));
    }
  }
}

TEST(DenseUpdaterTest, ARunningMeanThatIsNotFiniteIsAGradientThatIsNot) {
  for (const auto policy : {OnNonFinite::kFailJob, OnNonFinite::kSkipStep,
                            OnNonFinite::kDropBlock}) {
    NonFiniteBlock block(policy, kInfinity);
    block.updater_.MakeRunningMean(0, 0.5f);
    const double norm = block.updater_.ReduceGradients(0, 7, &block.scratch_);
    EXPECT_EQ(std::isfinite(norm), policy == OnNonFinite::kDropBlock);
    ASSERT_EQ(block.scratch_.non_finite.size(), 1u);
    EXPECT_EQ(block.scratch_.non_finite[0].rank, 1u);
  }
}

TEST(DenseUpdaterTest, CountsItsBytes) {
  const DenseUpdater updater(Adam(), kCounts);
  const uint64_t elements = 1 + 10 + 4 * DenseUpdater::kPieceElements + 5;
  EXPECT_EQ(updater.value_bytes(), 4 * elements);
  EXPECT_EQ(updater.slot_bytes(), 8 * elements);
  EXPECT_GE(DenseUpdater::MemoryBytes(Adam().optimizer, kCounts, false),
            12 * elements);
}

// The arrays and the number of updates are the whole state of a block.
TEST(DenseUpdaterTest, ABlockGoesOnFromItsArrays) {
  for (const auto kind :
       {OptimizerKind::kSgd, OptimizerKind::kNesterov, OptimizerKind::kAdagrad,
        OptimizerKind::kAdam, OptimizerKind::kRmsProp, OptimizerKind::kFtrl}) {
    DenseUpdater::Options options = Adam();
    options.optimizer.kind = kind;
    options.optimizer.centered = true;
    DenseUpdater whole(options, kCounts);
    DenseUpdater::Scratch scratch;
    const auto step = [&](DenseUpdater* updater, int64_t clock) {
      for (uint32_t block = 0; block < updater->block_count(); ++block) {
        if ((clock + block) % 3 == 0) continue;  // blocks differ in updates
        updater->BufferGradient(
            block, 0, RandomValues(clock * 10 + block, kCounts[block]), 0, 4);
        EXPECT_FALSE(updater->IsSettled(block));
        updater->Apply(block, clock, 4, -1, &scratch);
      }
    };
    for (int64_t clock = 0; clock < 5; ++clock) step(&whole, clock);
    DenseUpdater other(options, kCounts);
    for (uint32_t block = 0; block < whole.block_count(); ++block) {
      EXPECT_TRUE(whole.IsSettled(block));
      for (int array = 0; array < whole.arrays(); ++array) {
        const absl::Span<const float> from = whole.array(block, array);
        std::copy(from.begin(), from.end(),
                  other.mutable_array(block, array).begin());
      }
      other.SetUpdates(block, whole.updates(block));
    }
    for (int64_t clock = 5; clock < 9; ++clock) {
      step(&whole, clock);
      step(&other, clock);
    }
    for (uint32_t block = 0; block < whole.block_count(); ++block) {
      EXPECT_EQ(other.updates(block), whole.updates(block));
      for (int array = 0; array < whole.arrays(); ++array) {
        EXPECT_EQ(other.array(block, array), whole.array(block, array));
      }
    }
  }
}

}  // namespace
}  // namespace syncline
