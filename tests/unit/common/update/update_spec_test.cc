// Goal: a spec says the same to everybody who updates parameters, and what is
// not built is refused by its field.
// Method: specs with one value each, and those of every schedule and policy.

#include "common/update/update_spec.h"

#include <string>

#include "gtest/gtest.h"

namespace syncline {
namespace {

JobSpec Spec() {
  JobSpec spec;
  spec.mutable_optimizer()->set_kind(OptimizerSpec::ADAM);
  spec.mutable_optimizer()->set_beta1(0.8f);
  spec.mutable_optimizer()->set_clip_norm(3);
  spec.mutable_optimizer()->set_clip_value(0.5f);
  spec.mutable_learning_rate()->set_base(0.25f);
  spec.mutable_learning_rate()->set_schedule(LearningRateSpec::COSINE);
  spec.set_non_finite(DROP_BLOCK);
  TableSpec* const table = spec.add_tables();
  table->mutable_optimizer()->set_kind(OptimizerSpec::SGD);
  table->mutable_optimizer()->set_weight_decay(0.125f);
  return spec;
}

std::string ErrorOf(const JobSpec& spec) {
  return std::string(ReadUpdate(spec, {}).status().message());
}

TEST(UpdateSpecTest, DenseBlocksAreUpdatedAsTheSpecSays) {
  const auto update = ReadUpdate(
      Spec(), RegimeSchedule(TrainingRegime{.learning_rate_factor = 0.5}));
  ASSERT_TRUE(update.ok()) << update.status();
  EXPECT_EQ(update->optimizer.kind, OptimizerKind::kAdam);
  EXPECT_EQ(update->optimizer.beta1, 0.8f);
  EXPECT_EQ(update->rule.clip_norm, 3);
  EXPECT_EQ(update->rule.regimes.At(0).learning_rate_factor, 0.5);
  EXPECT_EQ(update->rule.learning_rate.base, 0.25);
  EXPECT_EQ(update->rule.learning_rate.total_clocks, 0) << "the job's, later";
  EXPECT_TRUE(EndsWithTheJob(update->rule.learning_rate.schedule));
  EXPECT_EQ(update->on_non_finite, OnNonFinite::kDropBlock);
}

TEST(UpdateSpecTest, InLocalOwnersHaveTheOuterOptimizerAndWorkersTheJobs) {
  JobSpec spec = Spec();
  spec.mutable_consistency()->set_mode(ConsistencySpec::LOCAL);
  LocalSpec* const local = spec.mutable_consistency()->mutable_local();
  local->mutable_optimizer()->set_kind(OptimizerSpec::NESTEROV);
  local->mutable_optimizer()->set_momentum(0.75f);
  local->set_learning_rate(0.5f);
  const auto outer = ReadUpdate(spec, {});
  ASSERT_TRUE(outer.ok()) << outer.status();
  EXPECT_EQ(outer->optimizer.kind, OptimizerKind::kNesterov);
  EXPECT_EQ(outer->optimizer.momentum, 0.75f);
  EXPECT_EQ(outer->rule.clip_norm, 0);
  EXPECT_EQ(outer->optimizer.clip_value, 0);
  EXPECT_FALSE(EndsWithTheJob(outer->rule.learning_rate.schedule));
  for (const int64_t clock : {0, 7, 1000}) {
    EXPECT_EQ(outer->rule.RateAt(clock), 0.5f);
  }
  const auto inner = ReadLocalUpdate(spec, {});
  ASSERT_TRUE(inner.ok()) << inner.status();
  EXPECT_EQ(inner->optimizer.kind, OptimizerKind::kAdam);
  EXPECT_EQ(inner->rule.clip_norm, 3);
  EXPECT_TRUE(EndsWithTheJob(inner->rule.learning_rate.schedule));
  local->mutable_optimizer()->clear_kind();
  EXPECT_EQ(ErrorOf(spec),
            "consistency.local.optimizer.kind: KIND_UNSPECIFIED is not built");
}

TEST(UpdateSpecTest, RowsAreClippedAsTheJobSays) {
  const auto params = ReadTableOptimizer(Spec(), 0);
  ASSERT_TRUE(params.ok()) << params.status();
  EXPECT_EQ(params->kind, OptimizerKind::kSgd);
  EXPECT_EQ(params->weight_decay, 0.125f);
  EXPECT_EQ(params->clip_value, 0.5f);
}

TEST(UpdateSpecTest, AScheduleEndsWhereItSaysOrWithTheJob) {
  LearningRateSpec spec;
  spec.set_schedule(LearningRateSpec::COSINE);
  EXPECT_EQ(LearningRateOf(spec, 70).total_clocks, 70);
  spec.set_total_clocks(30);
  EXPECT_EQ(LearningRateOf(spec, 70).total_clocks, 30);
}

TEST(UpdateSpecTest, WhatIsNotBuiltIsNamed) {
  JobSpec spec = Spec();
  spec.mutable_optimizer()->set_kind(OptimizerSpec::ROW_WISE_ADAGRAD);
  EXPECT_EQ(ErrorOf(spec),
            "optimizer.kind: ROW_WISE_ADAGRAD for dense tensors is not built");
  spec.mutable_optimizer()->set_kind(OptimizerSpec::KIND_UNSPECIFIED);
  EXPECT_EQ(ErrorOf(spec), "optimizer.kind: KIND_UNSPECIFIED is not built");
  spec = Spec();
  spec.mutable_learning_rate()->set_schedule(LearningRateSpec::STEP);
  EXPECT_EQ(ErrorOf(spec), "learning_rate.step_clocks is 0, must be > 0");
  spec.mutable_learning_rate()->set_schedule(
      static_cast<LearningRateSpec::Schedule>(77));
  EXPECT_EQ(ErrorOf(spec), "learning_rate.schedule:  is not built");
  spec = Spec();
  spec.set_non_finite(static_cast<NonFinitePolicy>(77));
  EXPECT_EQ(ErrorOf(spec), "non_finite: 77 is not built");
  spec = Spec();
  spec.mutable_tables(0)->mutable_optimizer()->set_kind(
      OptimizerSpec::KIND_UNSPECIFIED);
  EXPECT_EQ(ReadTableOptimizer(spec, 0).status().message(),
            "tables[0].optimizer.kind: KIND_UNSPECIFIED is not built");
}

TEST(UpdateSpecTest, PoliciesAreTheSpecs) {
  EXPECT_EQ(NonFiniteOf(FAIL_JOB), OnNonFinite::kFailJob);
  EXPECT_EQ(NonFiniteOf(NON_FINITE_POLICY_UNSPECIFIED), OnNonFinite::kFailJob);
  EXPECT_EQ(NonFiniteOf(SKIP_STEP), OnNonFinite::kSkipStep);
  for (const NonFinitePolicy policy : {FAIL_JOB, SKIP_STEP, DROP_BLOCK}) {
    const auto read = ReadNonFinite(policy);
    ASSERT_TRUE(read.ok());
    EXPECT_EQ(*read, NonFiniteOf(policy));
  }
}

// The job's own policy is then about the smallest scale.
TEST(UpdateSpecTest, ADynamicLossScaleSkipsSteps) {
  JobSpec spec = Spec();
  for (const Precision precision : {FLOAT32, BFLOAT16}) {
    spec.set_precision(precision);
    EXPECT_FALSE(HasDynamicLossScale(spec));
    EXPECT_EQ(GradientPolicyOf(spec), NonFiniteOf(spec.non_finite()));
  }
  spec.set_precision(FLOAT16);
  EXPECT_TRUE(HasDynamicLossScale(spec));
  EXPECT_EQ(GradientPolicyOf(spec), OnNonFinite::kSkipStep);
  EXPECT_EQ(*ReadGradientPolicy(spec), OnNonFinite::kSkipStep);
  spec.mutable_loss_scale()->set_fixed(1024);
  EXPECT_FALSE(HasDynamicLossScale(spec));
  spec.set_non_finite(DROP_BLOCK);
  EXPECT_EQ(GradientPolicyOf(spec), OnNonFinite::kDropBlock);
  spec.set_non_finite(static_cast<NonFinitePolicy>(77));
  EXPECT_FALSE(ReadGradientPolicy(spec).ok());
}

}  // namespace
}  // namespace syncline
