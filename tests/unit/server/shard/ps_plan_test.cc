// Goal: a plan says what shards take. Method: plans against shards that are
// made, and the rules of the memory table in server/README.md.

#include "server/shard/ps_plan.h"

#include "common/job/job_spec_fields.h"
#include "common/job/job_spec_validator.h"
#include "common/model/training_tables.h"
#include "common/update/dense_updater.h"
#include "common/update/update_spec.h"
#include "gtest/gtest.h"
#include "kernels/optimizer/row_optimizer.h"
#include "server/shard/job_config.h"

namespace syncline::ps {
namespace {

constexpr int64_t kMessages = 8 << 20;  // of a worker

JobSpec Spec(OptimizerSpec::Kind kind, uint32_t workers, uint32_t ps) {
  JobSpec spec;
  spec.mutable_optimizer()->set_kind(kind);
  spec.mutable_resources()->set_workers(workers);
  spec.mutable_resources()->set_ps(ps);
  return WithDefaults(spec);
}

std::vector<PsPlan> Plan(const JobSpec& spec) {
  const auto plan = PlanPs(spec, {{"w", 10'000'000}, {"b", 1000}});
  EXPECT_TRUE(plan.ok()) << plan.status();
  return *plan;
}

TEST(PsPlanTest, IsWhatShardsAllocate) {
  const std::vector<TensorSize> tensors = {{"w", 300'000}, {"b", 17}};
  const auto plan = PlanPs(Spec(OptimizerSpec::ADAM, 1, 3), tensors);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->size(), 3u);
  const BlockMap map = *BlockMap::Create(tensors, 3);
  for (uint32_t s = 0; s < 3; ++s) {
    std::vector<size_t> counts;
    for (const uint32_t b : map.shard_blocks(s)) {
      counts.push_back(static_cast<size_t>(map.blocks()[b].count));
    }
    DenseUpdater::Options options;
    options.optimizer.kind = OptimizerKind::kAdam;
    const DenseUpdater shard(options, counts);
    const auto planned =
        static_cast<double>((*plan)[s].value_bytes + (*plan)[s].slot_bytes);
    const auto taken =
        static_cast<double>(shard.value_bytes() + shard.slot_bytes());
    EXPECT_NEAR(planned, taken, 0.05 * taken);
  }
}

TEST(PsPlanTest, OptimizersHaveTheirState) {
  const int64_t values = Plan(Spec(OptimizerSpec::SGD, 1, 1))[0].value_bytes;
  EXPECT_EQ(Plan(Spec(OptimizerSpec::SGD, 1, 1))[0].slot_bytes, 0);
  EXPECT_NEAR(Plan(Spec(OptimizerSpec::MOMENTUM, 1, 1))[0].slot_bytes, values,
              0.01 * values);
  EXPECT_NEAR(Plan(Spec(OptimizerSpec::ADAM, 1, 1))[0].slot_bytes, 2 * values,
              0.01 * values);
}

TEST(PsPlanTest, WithDgcTheWorkersHaveTheMomentum) {
  JobSpec spec = Spec(OptimizerSpec::MOMENTUM, 1, 1);
  spec.mutable_checkpoint()->set_every_clocks(10);
  spec.mutable_compression()->set_kind(CompressionSpec::TOP_K);
  const PsPlan top_k = Plan(WithDefaults(spec))[0];
  spec.mutable_compression()->set_kind(CompressionSpec::DGC);
  const PsPlan dgc = Plan(WithDefaults(spec))[0];
  EXPECT_NEAR(top_k.slot_bytes, top_k.value_bytes, 0.01 * top_k.value_bytes);
  EXPECT_EQ(dgc.slot_bytes, 0);
  EXPECT_EQ(dgc.value_bytes, top_k.value_bytes);
  EXPECT_LT(dgc.copy_bytes, top_k.copy_bytes);
}

// Values as they were sent, and their last change.
TEST(PsPlanTest, ValuesThatComeBackAsChangesAreKept) {
  JobSpec spec = Spec(OptimizerSpec::ADAM, 1, 1);
  spec.mutable_compression()->set_kind(CompressionSpec::INT8);
  const PsPlan whole = Plan(WithDefaults(spec))[0];
  spec.mutable_compression()->set_values(true);
  const PsPlan changes = Plan(WithDefaults(spec))[0];
  EXPECT_NEAR(changes.value_bytes, 2.25 * whole.value_bytes,
              0.01 * whole.value_bytes);
  EXPECT_EQ(changes.slot_bytes, whole.slot_bytes);
}

TEST(PsPlanTest, InLocalTheStateIsThatOfTheOuterOptimizer) {
  JobSpec spec;
  spec.mutable_optimizer()->set_kind(OptimizerSpec::ADAM);
  spec.mutable_consistency()->set_mode(ConsistencySpec::LOCAL);
  EXPECT_EQ(Plan(WithDefaults(spec))[0].slot_bytes, 0);
  spec.mutable_consistency()->mutable_local()->mutable_optimizer()->set_kind(
      OptimizerSpec::NESTEROV);
  const PsPlan plan = Plan(WithDefaults(spec))[0];
  EXPECT_NEAR(plan.slot_bytes, plan.value_bytes, 0.01 * plan.value_bytes);
}

TEST(PsPlanTest, SyncKeepsTheGradientsOfTheOthers) {
  constexpr int64_t kGradient = 10'001'000 * 4;
  JobSpec spec = Spec(OptimizerSpec::SGD, 3, 1);
  EXPECT_EQ(Plan(spec)[0].waiting_bytes, 2 * kGradient);
  EXPECT_EQ(Plan(spec)[0].message_bytes, 3 * kMessages);
  spec.mutable_optimizer()->set_clip_norm(1);
  EXPECT_EQ(Plan(spec)[0].waiting_bytes, 3 * kGradient);
  spec.mutable_consistency()->set_mode(ConsistencySpec::ASYNC);
  EXPECT_EQ(Plan(spec)[0].waiting_bytes, 0);
}

TEST(PsPlanTest, ARuleThatLeadsToSyncIsPlannedFor) {
  constexpr int64_t kGradient = 10'001'000 * 4;
  JobSpec spec = Spec(OptimizerSpec::SGD, 3, 1);
  spec.mutable_consistency()->set_mode(ConsistencySpec::ASYNC);
  RegimeChange* const then = spec.add_regimes()->mutable_then();
  then->set_mode(ConsistencySpec::BOUNDED_STALENESS);
  EXPECT_EQ(Plan(spec)[0].waiting_bytes, 0);
  then->set_mode(ConsistencySpec::SYNC);
  EXPECT_EQ(Plan(spec)[0].waiting_bytes, 2 * kGradient);
  spec.mutable_optimizer()->set_clip_norm(1);
  EXPECT_EQ(Plan(spec)[0].waiting_bytes, 3 * kGradient);
}

TEST(PsPlanTest, AJobThatTriesSyncIsPlannedForIt) {
  constexpr int64_t kGradient = 10'001'000 * 4;
  JobSpec spec = Spec(OptimizerSpec::SGD, 3, 1);
  spec.mutable_consistency()->set_mode(ConsistencySpec::ASYNC);
  RegimeChange* const candidate = spec.mutable_auto_regime()->add_candidates();
  candidate->set_learning_rate_factor(2);
  EXPECT_EQ(Plan(spec)[0].waiting_bytes, 0);
  spec.mutable_auto_regime()->clear_candidates();
  EXPECT_EQ(Plan(spec)[0].waiting_bytes, 2 * kGradient);
}

void AddTable(OptimizerSpec::Kind kind, JobSpec* spec) {
  spec->add_tables()->mutable_optimizer()->set_kind(kind);
}

// As ConsistencyController::Options::NeedsGradientNorm has it.
TEST(PsPlanTest, SkippingAStepWaitsForTheWholeGradient) {
  constexpr int64_t kGradient = 10'001'000 * 4;
  JobSpec spec = Spec(OptimizerSpec::SGD, 3, 1);
  spec.set_non_finite(SKIP_STEP);
  EXPECT_EQ(Plan(spec)[0].waiting_bytes, 3 * kGradient);
  AddTable(OptimizerSpec::SGD, &spec);
  EXPECT_EQ(Plan(spec)[0].waiting_bytes, 3 * kGradient);
  spec.mutable_consistency()->set_mode(ConsistencySpec::ASYNC);
  EXPECT_EQ(Plan(spec)[0].waiting_bytes, 0);
}

TEST(PsPlanTest, WhatTravelsInSixteenBitsWaitsInThem) {
  constexpr int64_t kElements = 10'001'000;
  JobSpec spec = Spec(OptimizerSpec::SGD, 3, 1);
  spec.set_wire_type(WIRE_BFLOAT16);
  EXPECT_EQ(Plan(spec)[0].waiting_bytes, 2 * kElements * 2);
  spec.mutable_optimizer()->set_clip_norm(1);
  EXPECT_EQ(Plan(spec)[0].waiting_bytes, 2 * kElements * 2 + kElements * 4);
  const auto small = PlanPs(spec, {{"w", 1000}});
  ASSERT_TRUE(small.ok()) << small.status();
  EXPECT_EQ((*small)[0].message_bytes, 3 * 2 * 1000 * 2);
}

TEST(PsPlanTest, RowsMayFillEveryMessage) {
  JobSpec spec = Spec(OptimizerSpec::SGD, 3, 1);
  AddTable(OptimizerSpec::SGD, &spec);
  const auto plan = PlanPs(spec, {{"w", 1000}});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ((*plan)[0].message_bytes, 3 * kMessages);
}

// Key, score and clock, values, state; a third more than an index entry, and
// a mark that has room to grow.
// The workers have the tensors.
TEST(PsPlanTest, AHybridJobHasRowsAlone) {
  JobSpec spec = Spec(OptimizerSpec::ADAM, 3, 2);
  spec.set_strategy(HYBRID);
  spec.add_tables()->set_name("t");
  for (const PsPlan& ps : Plan(spec)) {
    EXPECT_EQ(ps.value_bytes, 0);
    EXPECT_EQ(ps.slot_bytes, 0);
    EXPECT_EQ(ps.waiting_bytes, 0);
    EXPECT_EQ(ps.message_bytes, 3 * kMessages);
  }
}

TEST(PsPlanTest, ARowHasItsStateItsPastAndItsPlace) {
  JobSpec spec = Spec(OptimizerSpec::SGD, 1, 1);
  AddTable(OptimizerSpec::SGD, &spec);
  AddTable(OptimizerSpec::ROW_WISE_ADAGRAD, &spec);
  AddTable(OptimizerSpec::ADAM, &spec);
  TrainingTable table;
  table.name = "emb";
  table.rows = 7;
  table.dim = 16;
  const auto plan = PlanTables(spec, std::vector<TrainingTable>(3, table));
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ((*plan)[0].name, "emb");
  EXPECT_EQ((*plan)[0].rows, 7);
  EXPECT_EQ((*plan)[0].dim, 16);
  constexpr int64_t kSgd = 8 + 4 + 4 + 16 * 4 + 6 + 2;
  EXPECT_EQ((*plan)[0].row_bytes, kSgd);
  EXPECT_EQ((*plan)[1].row_bytes, kSgd + 4);
  EXPECT_EQ((*plan)[2].row_bytes, kSgd + (2 * 16 + 1) * 4);
}

// The jobs' checks and the ps count a row's optimizer state alike, and both
// accept the same optimizers for tables.
TEST(PsPlanTest, TheListOfTableOptimizersIsThePssOwn) {
  constexpr uint32_t kDim = 16;
  for (int kind = 1; kind < OptimizerSpec::Kind_ARRAYSIZE; ++kind) {
    if (!OptimizerSpec::Kind_IsValid(kind)) continue;
    OptimizerSpec spec;
    spec.set_kind(static_cast<OptimizerSpec::Kind>(kind));
    SCOPED_TRACE(OptimizerSpec::Kind_Name(spec.kind()));
    const auto params = ReadOptimizer("optimizer", spec);
    ASSERT_TRUE(params.ok()) << params.status();
    ASSERT_EQ(RowOptimizer::Supports(params->kind),
              FindTableOptimizer(spec.kind()) != nullptr);
    if (!RowOptimizer::Supports(params->kind)) continue;
    EXPECT_EQ(
        sizeof(int64_t) +
            (kDim + RowOptimizer(*params, kDim).state_floats()) * sizeof(float),
        TableRowBytes(spec.kind(), kDim));
  }
}

TEST(PsPlanTest, WhatIsNotBuiltIsNamed) {
  JobSpec spec = Spec(OptimizerSpec::SGD, 1, 1);
  spec.mutable_optimizer()->set_kind(OptimizerSpec::KIND_UNSPECIFIED);
  EXPECT_EQ(PlanPs(spec, {{"w", 1}}).status().message(),
            "optimizer.kind: KIND_UNSPECIFIED is not built");
}

}  // namespace
}  // namespace syncline::ps
