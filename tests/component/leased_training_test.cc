// Goal: with leased data each sample of an epoch is trained once, by whichever
// worker, and what is trained is what one worker would train. Method: with a
// bound of 0 only the oldest lease can be computed, so several workers take
// turns and end with the bits of one worker; with a larger bound, samples that
// train an element each, whose updates can be counted in the result. Ps and
// workers are in this process.

#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/component/table_training_fixture.h"
#include "tests/testing/own_samples.h"
#include "tests/testing/status_matchers.h"

namespace syncline {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

TrainingRegime Bounded(int64_t bound) {
  return TrainingRegime{.mode = ConsistencyMode::kBoundedStaleness,
                        .staleness_bound = bound};
}

class LeasedTrainingTest : public TableTrainingTest {
 protected:
  static JobSpec Leased(JobSpec spec) {
    spec.mutable_data()->set_sharing(DataSpec::LEASED);
    spec.mutable_consistency()->set_mode(ConsistencySpec::ASYNC);
    return spec;
  }
  // Of workers that take turns.
  TrainingCluster::Outcome InTurn(uint32_t workers, uint32_t ps,
                                  const JobSpec& spec) {
    return MakeCluster(workers, ps, {Bounded(0)})
        ->RunJob(Leased(spec), ModelText("40"));
  }
};

TEST_F(LeasedTrainingTest, WorkersThatTakeTurnsHaveTheBitsOfOne) {
  JobSpec cached = TableSpecOf();
  cached.mutable_tables(0)->set_cache_rows(20);
  JobSpec parts = DenseSpec();
  parts.mutable_training()->set_micro_batches(2);
  parts.mutable_optimizer()->set_kind(OptimizerSpec::ADAM);
  const std::map<std::string, JobSpec> specs = {
      {"dense, Adam, in parts", parts},
      {"table", TableSpecOf(OptimizerSpec::ADAGRAD)},
      {"cached rows", cached},
  };
  for (const auto& [name, spec] : specs) {
    const auto alone = Train(1, 1, spec);
    ASSERT_OK(alone.status);
    for (const uint32_t workers : {1u, 2u, 5u}) {
      SCOPED_TRACE(absl::StrCat(name, ", ", workers, " workers"));
      const auto leased = InTurn(workers, 2, spec);
      ASSERT_OK(leased.status);
      EXPECT_EQ(leased.weights, alone.weights) << "bit for bit";
      ASSERT_EQ(leased.evaluations.size(), 2u);
      for (int e = 0; e < 2; ++e) {
        EXPECT_EQ(leased.evaluations[e].clock(), 11 * (e + 1));
        EXPECT_EQ(leased.evaluations[e].loss(), alone.evaluations[e].loss());
      }
    }
  }
}

TEST_F(LeasedTrainingTest, AScheduleFollowsTheClocksOfAll) {
  JobSpec spec = DenseSpec();
  spec.mutable_learning_rate()->set_schedule(LearningRateSpec::COSINE);
  const auto alone = Train(1, 1, spec);
  const auto leased = InTurn(3, 1, spec);
  ASSERT_OK(leased.status);
  EXPECT_EQ(leased.weights, alone.weights) << "bit for bit";
}

TEST_F(LeasedTrainingTest, AnEvaluatorEndsTheEpochs) {
  const JobSpec spec = TableSpecOf();
  const auto by_chief = InTurn(3, 2, spec);
  const auto by_evaluator = TrainingCluster({.workers = 3,
                                             .ps = 2,
                                             .work_dir = dir_.File("e"),
                                             .data_root = dir_.path(),
                                             .evaluator = true,
                                             .regimes = {Bounded(0)}})
                                .RunJob(Leased(spec), ModelText("40"));
  ASSERT_OK(by_chief.status);
  ASSERT_OK(by_evaluator.status);
  EXPECT_EQ(by_evaluator.weights, by_chief.weights);
  ASSERT_EQ(by_evaluator.evaluations.size(), 2u);
  EXPECT_EQ(by_evaluator.evaluations[0].loss(), by_chief.evaluations[0].loss());
}

// The chief may make its last step many epochs before the last one ends.
TEST_F(LeasedTrainingTest, EpochsOfOneClockEndWithAnEvaluatorToo) {
  JobSpec spec = TableSpecOf();
  spec.mutable_training()->set_batch_size(170);
  for (const auto& [epochs, workers] :
       std::vector<std::pair<uint32_t, uint32_t>>{
           {1, 2}, {2, 3}, {20, 1}, {20, 2}, {20, 4}}) {
    SCOPED_TRACE(absl::StrCat(epochs, " epochs, ", workers, " workers"));
    spec.mutable_training()->set_epochs(epochs);
    const auto alone = Train(1, 1, spec);
    ASSERT_OK(alone.status);
    const auto leased =
        TrainingCluster({.workers = workers,
                         .ps = 2,
                         .work_dir = dir_.File(absl::StrCat("t", ++clusters_)),
                         .data_root = dir_.path(),
                         .evaluator = true,
                         .regimes = {Bounded(0)}})
            .RunJob(Leased(spec), ModelText("40"));
    ASSERT_OK(leased.status);
    EXPECT_EQ(leased.weights, alone.weights) << "bit for bit";
    EXPECT_EQ(leased.evaluations.size(), epochs);
  }
}

// Eleven clocks an epoch, and one of them all: some workers have none.
TEST_F(LeasedTrainingTest, MoreWorkersThanClocks) {
  JobSpec spec = TableSpecOf();
  spec.mutable_training()->set_epochs(1);
  spec.mutable_training()->set_batch_size(170);
  const auto alone = Train(1, 1, spec);
  const auto leased = InTurn(4, 2, spec);
  ASSERT_OK(leased.status);
  EXPECT_EQ(leased.weights, alone.weights) << "bit for bit";
  auto cluster = MakeCluster(3, 1, {Bounded(0)});
  ASSERT_OK(cluster->Prepare(Leased(spec), ModelText("40")));
  cluster->Run();
  for (const uint32_t rank : {0u, 1u, 2u}) {
    EXPECT_TRUE(cluster->AwaitClock(rank, 1, absl::Seconds(60)))
        << "the progress of a rank that makes no step is the job's";
  }
  ASSERT_OK(cluster->AwaitDone(absl::Seconds(60)));
  ASSERT_OK(cluster->Stop(absl::Seconds(60)));
  spec.mutable_training()->set_epochs(3);
  const auto in_turn = InTurn(4, 1, spec);
  ASSERT_OK(in_turn.status);
  EXPECT_EQ(in_turn.evaluations.size(), 3u);
}

// A model without dense parameters: shard 0 answers pulls of rows alone.
TEST_F(LeasedTrainingTest, ShardsMayHaveRowsAlone) {
  constexpr char kRowsOnly[] = R"(
< ir_version: 8, opset_import: ["" : 13] >
rows (int64[N, 3] bag, float[40, 1] emb) => (float[N, 1] logit)
<int64[1] one = {1}>
{
  items = Gather (emb, bag)
  logit = ReduceSum <keepdims = 0> (items, one)
})";
  JobSpec spec = TableSpecOf();
  spec.mutable_model()->clear_initialize();
  spec.mutable_data()->mutable_feeds()->DeleteSubrange(1, 2);
  spec.mutable_training()->set_batch_size(3);
  const auto alone = MakeCluster(1, 1)->RunJob(spec, kRowsOnly);
  ASSERT_OK(alone.status);
  for (const uint32_t ps : {1u, 2u}) {
    const auto leased =
        MakeCluster(3, ps, {Bounded(0)})->RunJob(Leased(spec), kRowsOnly);
    ASSERT_OK(leased.status);
    EXPECT_EQ(leased.weights, alone.weights) << "bit for bit";
  }
}

TEST_F(LeasedTrainingTest, EachSampleCountsOncePerEpoch) {
  std::ofstream(dir_.File("own.libsvm")) << OwnSamplesText();
  const JobSpec spec = OwnSamplesJob("own.libsvm", /*epochs=*/8, /*rate=*/0.1f);
  Weights alone;
  for (const uint32_t workers : {1u, 3u}) {
    const auto leased = MakeCluster(workers, 2)->RunJob(spec, kOwnSamplesModel);
    ASSERT_OK(leased.status);
    const std::vector<float>& w = leased.weights.at("w");
    EXPECT_THAT(w, Each(w[0])) << "a sample counts more often than another";
    if (workers == 1) alone = leased.weights;
    EXPECT_EQ(leased.weights, alone);
  }
  EXPECT_GT(alone.at("w")[0], 0.1f);
  EXPECT_LT(alone.at("w")[0], 0.9f);
}

}  // namespace
}  // namespace syncline
