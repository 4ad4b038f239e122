// Goal: a worker's own steps are those that an owner of the tensors makes, bit
// for bit, for every optimizer and with clipping; what a round has changed is
// pushed so that the owners' gradient is the mean of the changes; and a
// gradient that is not finite is named. Method: the same gradients to a
// DenseUpdater, as the one worker of a job in SYNC; and changes summed by hand.

#include "worker/compute/local_updater.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "common/update/dense_updater.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/fakes/floats.h"

namespace syncline::worker {
namespace {

using ::testing::HasSubstr;
using Floats = std::vector<float>;

// Two tensors, the second of which may be a running mean.
class LocalUpdaterTest : public ::testing::Test {
 protected:
  static constexpr size_t kCounts[] = {3000, 7};

  void SetUp() override {
    Random random(3);
    for (const size_t count : kCounts) {
      values_.emplace_back(count);
      for (float& v : values_.back()) v = static_cast<float>(random.Normal());
      gradients_.emplace_back(count, 0.0f);
    }
  }
  std::unique_ptr<LocalUpdater> Make(
      const OptimizerParams& optimizer, const StepRule& rule,
      std::optional<float> momentum_of_second = {}) {
    std::vector<LocalUpdater::Tensor> tensors;
    for (size_t i = 0; i < values_.size(); ++i) {
      tensors.push_back({.name = absl::StrCat("w", i),
                         .value = absl::MakeSpan(values_[i]),
                         .gradient = gradients_[i]});
    }
    tensors[1].momentum = momentum_of_second;
    auto updater =
        std::make_unique<LocalUpdater>(optimizer, rule, std::move(tensors));
    EXPECT_TRUE(updater->MakeResident(nullptr).ok());
    return updater;
  }
  void DrawGradients(uint64_t seed) {
    Random random(seed);
    for (Floats& gradient : gradients_) {
      for (float& g : gradient) g = static_cast<float>(random.Normal());
    }
  }

  std::vector<Floats> values_;
  std::vector<Floats> gradients_;
};

StepRule RuleOf(double clip_norm) {
  StepRule rule;
  rule.learning_rate.schedule = LearningRate::Schedule::kStep;
  rule.learning_rate.base = 0.1;
  rule.learning_rate.step_clocks = 2;
  rule.learning_rate.gamma = 0.5;
  rule.clip_norm = clip_norm;
  return rule;
}

TEST_F(LocalUpdaterTest, StepsAreThoseOfAnOwner) {
  for (const OptimizerKind kind :
       {OptimizerKind::kSgd, OptimizerKind::kMomentum, OptimizerKind::kNesterov,
        OptimizerKind::kAdagrad, OptimizerKind::kAdam, OptimizerKind::kAdamW,
        OptimizerKind::kRmsProp}) {
    for (const double clip_norm : {0.0, 1.0}) {
      SCOPED_TRACE(
          absl::StrCat(static_cast<int>(kind), " clipped at ", clip_norm));
      OptimizerParams optimizer;
      optimizer.kind = kind;
      optimizer.weight_decay = 0.01f;
      optimizer.initial_accumulator = 0.5f;
      const StepRule rule = RuleOf(clip_norm);
      values_.clear();
      gradients_.clear();
      SetUp();
      const auto local = Make(optimizer, rule, /*momentum_of_second=*/0.75f);
      DenseUpdater owner({.optimizer = optimizer, .rule = rule}, kCounts);
      owner.MakeRunningMean(1, 0.75f);
      for (uint32_t i = 0; i < 2; ++i) {
        owner.Init(i, VectorFloats(values_[i]), 0);
      }
      DenseUpdater::Scratch scratch;
      for (int64_t step = 0; step < 6; ++step) {
        const int64_t clock = step / 2;
        const uint64_t samples = 8 + static_cast<uint64_t>(step);
        DrawGradients(100 + static_cast<uint64_t>(step));
        double squares = -1;
        for (uint32_t i = 0; i < 2; ++i) {
          owner.BufferGradient(
              i, 0, std::make_shared<VectorFloats>(gradients_[i]), 0, samples);
        }
        if (clip_norm > 0) {
          squares = owner.ReduceGradients(0, samples, &scratch) +
                    owner.ReduceGradients(1, samples, &scratch);
        }
        for (uint32_t i = 0; i < 2; ++i) {
          owner.Apply(i, clock, samples, squares, &scratch);
        }
        ASSERT_TRUE(local->Step(clock, samples).ok());
        for (uint32_t i = 0; i < 2; ++i) {
          ASSERT_EQ(std::memcmp(values_[i].data(), owner.values(i).data(),
                                values_[i].size() * sizeof(float)),
                    0)
              << "tensor " << i << " after step " << step;
        }
      }
    }
  }
}

TEST_F(LocalUpdaterTest, TheChangeOfARoundIsWeightedByItsSamples) {
  const auto local = Make(OptimizerParams(), RuleOf(0), 0.5f);
  const std::vector<Floats> start = values_;
  const float* const at = local->change(0).data();
  local->Begin();
  for (const uint64_t samples : {4, 2}) {
    DrawGradients(samples);
    ASSERT_TRUE(local->Step(0, samples).ok());
  }
  EXPECT_TRUE(local->End(6).ok());
  ASSERT_EQ(local->change(0).size(), kCounts[0]);
  for (size_t k = 0; k < kCounts[0]; ++k) {
    ASSERT_EQ(local->change(0)[k], (start[0][k] - values_[0][k]) * 6.0f);
  }
  // Of a running mean the mean of the workers' values is wanted.
  for (size_t k = 0; k < kCounts[1]; ++k) {
    ASSERT_EQ(local->change(1)[k], values_[1][k] * 6.0f);
    ASSERT_NE(values_[1][k], start[1][k]);
  }
  // The next round begins with what is there then.
  values_[0][0] = 100;
  local->Begin();
  EXPECT_TRUE(local->End(1).ok());
  EXPECT_EQ(local->change(0)[0], 0);
  EXPECT_EQ(local->change(0).data(), at) << "it is pushed from there";
}

TEST_F(LocalUpdaterTest, TheStateOfTheOptimizerOutlivesARound) {
  OptimizerParams momentum;
  momentum.kind = OptimizerKind::kMomentum;
  const auto local = Make(momentum, RuleOf(0));
  local->Begin();
  DrawGradients(1);
  ASSERT_TRUE(local->Step(0, 1).ok());
  EXPECT_TRUE(local->End(1).ok());
  for (Floats& gradient : gradients_) gradient.assign(gradient.size(), 0);
  const float before = values_[0][0];
  local->Begin();
  ASSERT_TRUE(local->Step(0, 1).ok());
  EXPECT_NE(values_[0][0], before) << "the velocity is gone";
}

TEST_F(LocalUpdaterTest, AScheduleMayEndWithTheJob) {
  StepRule rule;
  rule.learning_rate.schedule = LearningRate::Schedule::kCosine;
  rule.learning_rate.base = 1;
  rule.learning_rate.total_clocks = 0;  // not known yet
  const auto local = Make(OptimizerParams(), rule);
  local->SetTotalClocks(10);
  gradients_[0].assign(gradients_[0].size(), 1);
  values_[0].assign(values_[0].size(), 0);
  ASSERT_TRUE(local->Step(5, 1).ok());
  EXPECT_NEAR(values_[0][0], -0.5f, 1e-6f);
  const float before = values_[0][0];
  ASSERT_TRUE(local->Step(10, 1).ok());
  EXPECT_NEAR(values_[0][0], before, 1e-6f) << "the rate is 0 at the end";
}

TEST_F(LocalUpdaterTest, AGradientThatIsNotFiniteIsNamed) {
  const auto local = Make(OptimizerParams(), RuleOf(0), 0.5f);
  DrawGradients(1);
  gradients_[1][3] = std::numeric_limits<float>::infinity();
  const absl::Status status = local->Step(0, 1);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("element 3 of the gradient of 'w1' is inf"));
}

TEST_F(LocalUpdaterTest, MemoryIsPlanned) {
  OptimizerParams adam;
  adam.kind = OptimizerKind::kAdam;
  const LocalUpdater::Memory memory =
      LocalUpdater::MemoryOf(adam, {3000, 7}, /*on_device=*/false);
  EXPECT_EQ(memory.change_bytes, (3008 + 16) * sizeof(float));
  EXPECT_EQ(memory.slot_bytes, 2 * memory.change_bytes);
  EXPECT_EQ(LocalUpdater::MemoryOf(OptimizerParams(), {3000}, false).slot_bytes,
            0u);
}

}  // namespace
}  // namespace syncline::worker
