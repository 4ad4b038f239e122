// Goal: a whole job whose regime changes has the rate, the bound and the wire
// type of each clock, on the servers and in the rows that a worker keeps.
// Method: training jobs whose results must agree to the last bit with those of
// jobs that say the same in another way. The regimes are in the assignment:
// users cannot ask for them yet.

#include <vector>

#include "tests/component/table_training_fixture.h"

namespace syncline {
namespace {

// One worker with so many regimes, and with their rates in its schedule.
TEST_F(TableTrainingTest, ARegimesFactorScalesTheRate) {
  for (const ConsistencyMode mode :
       {ConsistencyMode::kSync, ConsistencyMode::kAsync}) {
    JobSpec spec = TableSpecOf();
    if (mode == ConsistencyMode::kAsync) {
      spec.mutable_consistency()->set_mode(ConsistencySpec::ASYNC);
      spec.mutable_tables(0)->set_cache_rows(30);
      spec.mutable_tables(0)->set_cache_clocks(3);
    }
    const auto by_regime =
        MakeCluster(
            1, 2,
            {{.mode = mode},
             {.first_clock = 8, .mode = mode, .learning_rate_factor = 0.5},
             {.first_clock = 16, .mode = mode, .learning_rate_factor = 0.25}})
            ->RunJob(spec, ModelText("40"));
    ASSERT_EQ(by_regime.status, absl::OkStatus());
    const auto plain = Train(1, 2, spec);
    ASSERT_EQ(plain.status, absl::OkStatus());
    EXPECT_NE(by_regime.weights, plain.weights);
    spec.mutable_learning_rate()->set_schedule(LearningRateSpec::STEP);
    spec.mutable_learning_rate()->set_step_clocks(8);
    spec.mutable_learning_rate()->set_gamma(0.5);
    const auto by_schedule = Train(1, 2, spec);
    ASSERT_EQ(by_schedule.status, absl::OkStatus());
    EXPECT_EQ(by_regime.weights, by_schedule.weights) << "bit for bit";
  }
}

TEST_F(TableTrainingTest, KeptRowsFollowTheRegimesAsTheServersDo) {
  const std::vector<TrainingRegime> regimes = {
      {.mode = ConsistencyMode::kAsync},
      {.first_clock = 5,
       .mode = ConsistencyMode::kBoundedStaleness,
       .staleness_bound = 3,
       .learning_rate_factor = 0.7},
      {.first_clock = 14,
       .mode = ConsistencyMode::kAsync,
       .learning_rate_factor = 1.5}};
  JobSpec spec = TableSpecOf();
  spec.mutable_consistency()->set_mode(ConsistencySpec::ASYNC);
  spec.mutable_learning_rate()->set_schedule(LearningRateSpec::COSINE);
  const auto pulled = MakeCluster(1, 2, regimes)->RunJob(spec, ModelText("40"));
  ASSERT_EQ(pulled.status, absl::OkStatus());
  spec.mutable_tables(0)->set_cache_rows(30);
  spec.mutable_tables(0)->set_cache_clocks(3);
  const auto kept = MakeCluster(1, 2, regimes)->RunJob(spec, ModelText("40"));
  ASSERT_EQ(kept.status, absl::OkStatus());
  EXPECT_EQ(kept.weights, pulled.weights) << "bit for bit";
}

// Cuts at the ends of epochs, borders within them, rows and dense tensors.
TEST_F(TableTrainingTest, AJobGoesInAndOutOfSync) {
  JobSpec spec = TableSpecOf();
  spec.mutable_optimizer()->set_clip_norm(100);
  spec.mutable_training()->set_epochs(8);
  const std::vector<TrainingRegime> regimes = {
      {.mode = ConsistencyMode::kSync},
      {.first_clock = 4,
       .mode = ConsistencyMode::kAsync,
       .wire_type = ElementType::kBfloat16,
       .learning_rate_factor = 0.5},
      {.first_clock = 12, .mode = ConsistencyMode::kSync},
      {.first_clock = 19,
       .mode = ConsistencyMode::kBoundedStaleness,
       .staleness_bound = 2,
       .wire_type = ElementType::kFloat16},
      {.first_clock = 29, .mode = ConsistencyMode::kSync}};
  for (const uint32_t ps : {1u, 3u}) {
    const auto outcome =
        MakeCluster(2, ps, regimes)->RunJob(spec, ModelText("40"));
    ASSERT_EQ(outcome.status, absl::OkStatus());
    ASSERT_EQ(outcome.evaluations.size(), 8u);
    EXPECT_GT(outcome.evaluations[7].auc(), 0.7);
  }
}

// In SYNC a run is the same however many ps there are, whatever travels.
TEST_F(TableTrainingTest, WireTypesOfRegimesKeepTheBitsOfSync) {
  const std::vector<TrainingRegime> regimes = {
      {.wire_type = ElementType::kBfloat16},
      {.first_clock = 3},
      {.first_clock = 7, .wire_type = ElementType::kFloat16},
      {.first_clock = 10, .wire_type = ElementType::kBfloat16}};
  const JobSpec spec = TableSpecOf();
  const auto one = MakeCluster(2, 1, regimes)->RunJob(spec, ModelText("40"));
  ASSERT_EQ(one.status, absl::OkStatus());
  const auto three = MakeCluster(2, 3, regimes)->RunJob(spec, ModelText("40"));
  ASSERT_EQ(three.status, absl::OkStatus());
  EXPECT_EQ(one.weights, three.weights) << "bit for bit";
  EXPECT_NE(one.weights, Train(2, 1, spec).weights);
}

}  // namespace
}  // namespace syncline
