// Goal: gradients are folded in rank order whatever the order of arrival, and
// applied as the optimizer says, over blocks larger and smaller than a piece.
// Method: bitwise comparison with a serial fold and one call of the optimizer.

#include "server/dense/dense_shard.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "common/base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/fakes/payloads.h"

namespace syncline::ps {
namespace {

std::shared_ptr<const VectorFloats> RandomValues(uint64_t seed, size_t count) {
  Random random(seed);
  std::vector<float> values(count);
  for (float& value : values) {
    value = static_cast<float>(random.Normal() * std::exp2(random.Below(20)));
  }
  return std::make_shared<VectorFloats>(std::move(values));
}

constexpr size_t kCounts[] = {1, 10, DenseShard::kPieceElements,
                              3 * DenseShard::kPieceElements + 5};

DenseShard::Options Adam() {
  DenseShard::Options options;
  options.optimizer.kind = OptimizerKind::kAdam;
  options.optimizer.weight_decay = 0.01f;
  options.learning_rate.base = 0.1;
  return options;
}

TEST(DenseShardTest, MakingResidentCanBeStopped) {
  // Blocks of 1 MiB: what is asked for before each, and each 64 of them.
  const std::vector<size_t> counts(80, size_t{1} << 18);
  DenseShard::Options options;
  options.optimizer.kind = OptimizerKind::kSgd;
  DenseShard shard(options, counts);
  int asked = 0;
  EXPECT_EQ(shard.MakeResident([&] {
    return ++asked < 70 ? absl::OkStatus() : absl::CancelledError("stopped");
  }),
            absl::CancelledError("stopped"));
  EXPECT_EQ(asked, 70);
  EXPECT_EQ(shard.MakeResident(nullptr), absl::OkStatus());
}

TEST(DenseShardTest, InitTakesValuesFromAnyOffset) {
  DenseShard shard(Adam(), kCounts);
  const auto source = RandomValues(1, 100);
  shard.Init(1, *source, 7);
  EXPECT_TRUE(std::equal(shard.values(1).begin(), shard.values(1).end(),
                         source->get().begin() + 7));
  EXPECT_EQ(shard.values(0)[0], 0.0f);
}

TEST(DenseShardTest, FoldsInRankOrderWhateverTheOrderOfArrival) {
  DenseShard::Scratch scratch;
  for (BlockIndex block = 0; block < 4; ++block) {
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
      DenseShard shard(Adam(), kCounts);
      for (const uint32_t rank : order) {
        shard.BufferGradient(block, rank, gradients[rank], 0);
      }
      shard.Apply(block, 0, 48, -1, &scratch);
      ASSERT_TRUE(
          std::equal(value.begin(), value.end(), shard.values(block).begin()));
    } while (std::next_permutation(std::begin(order), std::end(order)));
  }
}

TEST(DenseShardTest, LetsGoOfGradientsOnceApplied) {
  DenseShard shard(Adam(), kCounts);
  DenseShard::Scratch scratch;
  const auto gradient = RandomValues(3, kCounts[3]);
  shard.BufferGradient(3, 0, gradient, 0);
  EXPECT_EQ(gradient.use_count(), 2);
  shard.Apply(3, 0, 1, -1, &scratch);
  EXPECT_EQ(gradient.use_count(), 1);
  shard.BufferGradient(3, 0, gradient, 0);
  shard.ReduceGradients(3, 1, &scratch);
  EXPECT_EQ(gradient.use_count(), 1);
}

TEST(DenseShardTest, AdamCountsTheUpdatesOfEachBlock) {
  DenseShard shard(Adam(), kCounts);
  DenseShard::Scratch scratch;
  const auto gradient =
      std::make_shared<VectorFloats>(std::vector<float>(10, 1.0f));
  // Bias-corrected, each step with a constant gradient is the learning rate
  // (less a little decay); with a t shared by all blocks it would not be.
  for (int i = 0; i < 5; ++i) {
    shard.BufferGradient(0, 0, gradient, 0);
    shard.Apply(0, i, 1, -1, &scratch);
  }
  shard.BufferGradient(1, 0, gradient, 0);
  shard.Apply(1, 5, 1, -1, &scratch);
  EXPECT_NEAR(shard.values(0)[0], -0.5, 1e-3);
  EXPECT_NEAR(shard.values(1)[9], -0.1, 1e-4);
}

TEST(DenseShardTest, AClippedNormScalesTheMean) {
  DenseShard::Options options;
  options.learning_rate.base = 1;
  options.clip_norm = 2;
  DenseShard::Scratch scratch;
  const auto gradient =
      std::make_shared<VectorFloats>(std::vector<float>(10, 8.0f));
  for (const bool folded : {false, true}) {
    DenseShard shard(options, kCounts);
    const auto step = [&](double squared_norm) {
      const float before = shard.values(1)[0];
      shard.BufferGradient(1, 0, gradient, 0);
      if (folded) {
        EXPECT_EQ(shard.ReduceGradients(1, 4, &scratch), 10 * 2.0 * 2.0);
      }
      shard.Apply(1, 0, 4, squared_norm, &scratch);
      return before - shard.values(1)[0];
    };
    EXPECT_EQ(step(-1), 2.0f);    // unknown: not clipped
    EXPECT_EQ(step(4.0), 2.0f);   // at the limit
    EXPECT_EQ(step(64.0), 0.5f);  // four times too large
  }
}

TEST(DenseShardTest, TheLearningRateIsThatOfTheClock) {
  DenseShard::Options options;
  options.learning_rate = {.schedule = LearningRate::Schedule::kStep,
                           .base = 1,
                           .step_clocks = 10,
                           .gamma = 0.5};
  DenseShard shard(options, kCounts);
  DenseShard::Scratch scratch;
  shard.BufferGradient(
      0, 0, std::make_shared<VectorFloats>(std::vector<float>{4.0f}), 0);
  shard.Apply(0, 25, 1, -1, &scratch);
  EXPECT_EQ(shard.values(0)[0], -1.0f);
}

TEST(DenseShardTest, AdagradStartsFromItsAccumulator) {
  DenseShard::Options options;
  options.optimizer = {
      .kind = OptimizerKind::kAdagrad, .epsilon = 0, .initial_accumulator = 7};
  options.learning_rate.base = 1;
  DenseShard shard(options, kCounts);
  DenseShard::Scratch scratch;
  shard.BufferGradient(
      0, 0, std::make_shared<VectorFloats>(std::vector<float>{3.0f}), 0);
  shard.Apply(0, 0, 1, -1, &scratch);
  EXPECT_EQ(shard.values(0)[0], -0.75f);  // 3 / sqrt(7 + 9)
}

TEST(DenseShardTest, ThreeSlotsLieBehindTheValues) {
  DenseShard::Options options;
  options.optimizer = {.kind = OptimizerKind::kRmsProp,
                       .momentum = 0.9f,
                       .decay = 0.9f,
                       .centered = true};
  options.learning_rate.base = 0.01;
  DenseShard shard(options, kCounts);
  DenseShard::Scratch scratch;
  const size_t count = kCounts[3];
  std::vector<float> value(count), squares(count), means(count), moved(count);
  float* const slots[] = {squares.data(), means.data(), moved.data()};
  for (int clock = 0; clock < 3; ++clock) {
    const auto gradient = RandomValues(40 + clock, count);
    ApplyOptimizer(options.optimizer, {.learning_rate = 0.01f},
                   gradient->get().data(), value.data(), slots, count);
    shard.BufferGradient(3, 0, gradient, 0);
    shard.Apply(3, clock, 1, -1, &scratch);
  }
  EXPECT_TRUE(std::equal(value.begin(), value.end(), shard.values(3).begin()));
  EXPECT_EQ(shard.slot_bytes(), 3 * shard.value_bytes());
  const uint64_t bytes = DenseShard::MemoryBytes(options.optimizer, kCounts,
                                                 /*with_reduced=*/false);
  EXPECT_GE(bytes, 4 * shard.value_bytes());
  EXPECT_GE(DenseShard::MemoryBytes(options.optimizer, kCounts, true),
            bytes + shard.value_bytes());
}

TEST(DenseShardTest, LambsHalvesAreTheKernels) {
  DenseShard::Options options;
  options.optimizer = {.kind = OptimizerKind::kLamb, .weight_decay = 0.1f};
  options.learning_rate.base = 0.1;
  const size_t count = kCounts[3];
  const auto initial = RandomValues(5, count);
  for (const bool folded : {false, true}) {
    DenseShard shard(options, kCounts);
    DenseShard::Scratch scratch;
    shard.Init(3, *initial, 0);
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
      shard.BufferGradient(3, 0, gradient, 0);
      if (folded) shard.ReduceGradients(3, 4, &scratch);
      const LambNorms norms = shard.ComputeLambUpdate(3, 4, -1, &scratch);
      EXPECT_EQ(norms.value, expected.value);
      EXPECT_EQ(norms.update, expected.update);
      EXPECT_EQ(gradient.use_count(), 1);
      shard.ApplyLambUpdate(3, clock, 0.5);
    }
    EXPECT_TRUE(
        std::equal(value.begin(), value.end(), shard.values(3).begin()));
  }
}

// Three workers' gradients of 8 elements, of 1, 2 and 4 samples; `bad` of rank
// 1 is not finite.
class NonFiniteBlock {
 public:
  explicit NonFiniteBlock(OnNonFinite policy, float bad)
      : shard_(MakeOptions(policy), kOne) {
    for (uint32_t rank = 0; rank < 3; ++rank) {
      std::vector<float> values(8, 1.0f + rank);
      if (rank == 1) values[5] = bad;
      shard_.BufferGradient(0, rank, std::make_shared<VectorFloats>(values), 0,
                            1 << rank);
    }
  }
  float value(size_t i) { return shard_.values(0)[i]; }
  DenseShard shard_;
  DenseShard::Scratch scratch_;

 private:
  static constexpr size_t kOne[] = {8};
  static DenseShard::Options MakeOptions(OnNonFinite policy) {
    DenseShard::Options options;
    options.learning_rate.base = 1;
    options.on_non_finite = policy;
    return options;
  }
};

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Steps that may be skipped have a norm too.
TEST(DenseShardTest, ANormThatIsNotClippedScalesNothing) {
  DenseShard::Options options;
  options.learning_rate.base = 1;
  DenseShard shard(options, kCounts);
  DenseShard::Scratch scratch;
  shard.BufferGradient(
      1, 0, std::make_shared<VectorFloats>(std::vector<float>(10, 8.0f)), 0);
  shard.Apply(1, 0, 4, 40, &scratch);
  EXPECT_EQ(shard.values(1)[0], -2.0f);
}

TEST(DenseShardTest, AGradientThatIsNotFiniteIsNamed) {
  for (const auto policy : {OnNonFinite::kFailJob, OnNonFinite::kSkipStep,
                            OnNonFinite::kDropBlock}) {
    for (const float bad : {kNan, kInfinity, -kInfinity}) {
      for (const bool folded : {false, true}) {
        NonFiniteBlock block(policy, bad);
        if (folded) {
          block.shard_.ReduceGradients(0, 7, &block.scratch_);
        } else {
          block.shard_.Apply(0, 0, 7, -1, &block.scratch_);
        }
        ASSERT_EQ(block.scratch_.non_finite.size(), 1u);
        EXPECT_EQ(block.scratch_.non_finite[0].rank, 1u);
        EXPECT_EQ(block.scratch_.non_finite[0].element, 5u);
      }
    }
  }
}

TEST(DenseShardTest, WhatIsDroppedTakesItsSamplesAlong) {
  for (const bool folded : {false, true}) {
    NonFiniteBlock block(OnNonFinite::kDropBlock, kNan);
    if (folded) {
      // (1 + 3) / (1 + 4), eight times.
      EXPECT_NEAR(block.shard_.ReduceGradients(0, 7, &block.scratch_), 8 * 0.64,
                  1e-6);
    }
    block.shard_.Apply(0, 0, 7, -1, &block.scratch_);
    EXPECT_EQ(block.value(0), -4 * (1 / 5.0f));
    EXPECT_EQ(block.value(5), block.value(0));
  }
}

TEST(DenseShardTest, ABlockThatNothingIsLeftOfStaysAsItIs) {
  DenseShard::Options options = Adam();
  options.on_non_finite = OnNonFinite::kDropBlock;
  DenseShard shard(options, kCounts);
  DenseShard::Scratch scratch;
  shard.Init(1, *RandomValues(1, 10), 0);
  const std::vector<float> before(shard.values(1).begin(),
                                  shard.values(1).end());
  const auto bad =
      std::make_shared<VectorFloats>(std::vector<float>(10, kInfinity));
  for (const bool folded : {false, true}) {
    shard.BufferGradient(1, 0, bad, 0, 4);
    if (folded) {
      EXPECT_EQ(shard.ReduceGradients(1, 4, &scratch), 0);
    }
    shard.Apply(1, 0, 4, -1, &scratch);
    EXPECT_EQ(bad.use_count(), 1);
    EXPECT_TRUE(
        std::equal(before.begin(), before.end(), shard.values(1).begin()));
  }
}

TEST(DenseShardTest, ASumThatOverflowsIsNobodysFault) {
  DenseShard::Options options;
  options.on_non_finite = OnNonFinite::kDropBlock;
  DenseShard shard(options, kCounts);
  DenseShard::Scratch scratch;
  const auto large =
      std::make_shared<VectorFloats>(std::vector<float>(10, 3e38f));
  shard.BufferGradient(1, 0, large, 0, 4);
  shard.BufferGradient(1, 1, large, 0, 4);
  shard.Apply(1, 0, 8, -1, &scratch);
  ASSERT_EQ(scratch.non_finite.size(), 1u);
  EXPECT_EQ(scratch.non_finite[0].rank, DenseShard::NonFinite::kSum);
  EXPECT_EQ(shard.values(1)[0], 0.0f);
}

TEST(DenseShardTest, ASkippedStepsNormIsNotFinite) {
  NonFiniteBlock block(OnNonFinite::kSkipStep, kInfinity);
  EXPECT_FALSE(
      std::isfinite(block.shard_.ReduceGradients(0, 7, &block.scratch_)));
  block.shard_.DropGradients(0);
  EXPECT_EQ(block.value(0), 0.0f);
  block.shard_.BufferGradient(
      0, 0, std::make_shared<VectorFloats>(std::vector<float>(8, 2)), 0, 1);
  block.shard_.Apply(0, 1, 1, -1, &block.scratch_);
  EXPECT_EQ(block.value(0), -2.0f) << "nothing is left of what was dropped";
}

// 0.75 of the value and a quarter of the mean, of two samples and of six.
TEST(DenseShardTest, ARunningMeanKnowsNoOptimizer) {
  const auto of = [](float v) {
    return std::make_shared<VectorFloats>(std::vector<float>(10, v));
  };
  for (const auto kind :
       {OptimizerKind::kAdam, OptimizerKind::kFtrl, OptimizerKind::kLamb}) {
    for (const bool folded : {false, true}) {
      DenseShard::Options options = Adam();
      options.optimizer.kind = kind;
      options.optimizer.clip_value = 0.1f;
      options.clip_norm = 0.1;
      DenseShard shard(options, kCounts);
      DenseShard::Scratch scratch;
      shard.MakeRunningMean(1, 0.75f);
      shard.Init(1, *of(8), 0);
      shard.BufferGradient(1, 1, of(12), 0, 6);
      shard.BufferGradient(1, 0, of(20), 0, 2);
      const double norm = folded ? shard.ReduceGradients(1, 8, &scratch) : 0;
      EXPECT_EQ(norm, 0);
      if (kind == OptimizerKind::kLamb) {
        const LambNorms norms = shard.ComputeLambUpdate(1, 8, 100, &scratch);
        EXPECT_EQ(norms.value, 0);
        EXPECT_EQ(norms.update, 0);
        shard.ApplyLambUpdate(1, 0, 1);
      } else {
        shard.Apply(1, 0, 8, 100, &scratch);
      }
      EXPECT_THAT(shard.values(1), ::testing::Each(7.0f));
    }
  }
}

TEST(DenseShardTest, ARunningMeanThatIsNotFiniteIsAGradientThatIsNot) {
  for (const auto policy : {OnNonFinite::kFailJob, OnNonFinite::kSkipStep,
                            OnNonFinite::kDropBlock}) {
    NonFiniteBlock block(policy, kInfinity);
    block.shard_.MakeRunningMean(0, 0.5f);
    const double norm = block.shard_.ReduceGradients(0, 7, &block.scratch_);
    EXPECT_EQ(std::isfinite(norm), policy == OnNonFinite::kDropBlock);
    ASSERT_EQ(block.scratch_.non_finite.size(), 1u);
    EXPECT_EQ(block.scratch_.non_finite[0].rank, 1u);
  }
}

TEST(DenseShardTest, CountsItsBytes) {
  const DenseShard shard(Adam(), kCounts);
  const uint64_t elements = 1 + 10 + 4 * DenseShard::kPieceElements + 5;
  EXPECT_EQ(shard.value_bytes(), 4 * elements);
  EXPECT_EQ(shard.slot_bytes(), 8 * elements);
  EXPECT_GE(DenseShard::MemoryBytes(Adam().optimizer, kCounts, false),
            12 * elements);
}

}  // namespace
}  // namespace syncline::ps
