// Goal: a job's evaluator says what the chief would have said, bit for bit and
// of each epoch once, while the others train.
// Method: ps, workers and an evaluator in this process, real gRPC between them,
// generated digits, a small perceptron; the test plays the scheduler, and holds
// evaluations up where their order matters.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/daemon/metrics.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/assignment_builder.h"
#include "tests/testing/job_builder.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/training_cluster.h"

namespace syncline {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr absl::Duration kPatience = absl::Seconds(60);
constexpr int64_t kStepsPerEpoch = 10;
constexpr uint32_t kWorkers = 2;

JobSpec ThreeEpochs(ConsistencySpec::Mode mode = ConsistencySpec::SYNC) {
  JobSpec job = DigitsJob();
  job.mutable_data()->mutable_train()->mutable_digits()->set_count(
      kStepsPerEpoch * kWorkers * job.training().batch_size());
  job.mutable_data()->mutable_test()->mutable_digits()->set_count(300);
  job.mutable_data()->mutable_test()->mutable_digits()->set_seed(2);
  job.mutable_consistency()->set_mode(mode);
  job.mutable_training()->set_epochs(3);
  job.mutable_training()->set_threads(1);
  return job;
}

std::string Model() { return MlpModel(784, 32, 10); }

class EvaluationTest : public ::testing::Test {
 protected:
  TrainingCluster::Options Options(bool evaluator) {
    return {.workers = kWorkers,
            .ps = 2,
            .work_dir = dir_.File(absl::StrCat("c", ++clusters_)),
            .data_root = dir_.path(),
            .evaluator = evaluator};
  }
  TrainingCluster::Outcome Train(bool evaluator, const JobSpec& job) {
    return TrainingCluster(Options(evaluator)).RunJob(job, Model());
  }

  TempDir dir_;
  int clusters_ = 0;
};

std::vector<std::string> WithoutTime(std::vector<Evaluation> evaluations) {
  std::vector<std::string> bytes;
  for (Evaluation& evaluation : evaluations) {
    evaluation.clear_time();
    bytes.push_back(evaluation.SerializeAsString());
  }
  return bytes;
}

std::vector<int64_t> Clocks(const std::vector<Evaluation>& evaluations) {
  std::vector<int64_t> clocks;
  for (const Evaluation& evaluation : evaluations) {
    clocks.push_back(evaluation.clock());
  }
  return clocks;
}

TEST_F(EvaluationTest, SaysWhatTheChiefWouldSay) {
  JobSpec job = ThreeEpochs();
  job.mutable_training()->set_max_clocks(2 * kStepsPerEpoch + 3);
  const auto by_chief = Train(/*evaluator=*/false, job);
  const auto by_evaluator = Train(/*evaluator=*/true, job);
  ASSERT_OK(by_chief.status);
  ASSERT_OK(by_evaluator.status);
  EXPECT_EQ(WithoutTime(by_evaluator.evaluations),
            WithoutTime(by_chief.evaluations));
  ASSERT_EQ(by_evaluator.evaluations.size(), 3u);
  EXPECT_TRUE(by_evaluator.evaluations.back().final());
  EXPECT_EQ(by_evaluator.weights, by_chief.weights) << "bit for bit";
  EXPECT_THAT(by_evaluator.artifacts.at("metrics.json"),
              AllOf(HasSubstr("\"evaluations\""), HasSubstr("\"final\": true"),
                    Not(HasSubstr("\"progress\""))));
  EXPECT_EQ(by_evaluator.artifacts.count("logs/evaluator-0.log"), 1u);
}

// Epochs with a rate that grows until the loss does, too.
TEST_F(EvaluationTest, TheBestEpochIsStoredByWhoEvaluates) {
  JobSpec job = ThreeEpochs();
  job.mutable_export_()->set_best_of(LOSS);
  auto* const rate = job.mutable_learning_rate();
  rate->set_schedule(LearningRateSpec::LINEAR_WARMUP);
  rate->set_start(0.01);
  rate->set_base(4);
  rate->set_warmup_clocks(3 * kStepsPerEpoch);
  std::string best_of_chief;
  for (const bool evaluator : {false, true}) {
    SCOPED_TRACE(evaluator);
    const auto outcome = Train(evaluator, job);
    ASSERT_OK(outcome.status);
    double lowest = HUGE_VAL;
    bool last_is_best = false;
    for (const Evaluation& evaluation : outcome.evaluations) {
      last_is_best = evaluation.loss() < lowest;
      EXPECT_EQ(evaluation.best(), last_is_best) << evaluation.DebugString();
      lowest = std::min(lowest, evaluation.loss());
    }
    const std::string& best = outcome.artifacts.at("best.onnx");
    EXPECT_EQ(best == outcome.artifacts.at("trained.onnx"), last_is_best);
    EXPECT_EQ(outcome.artifacts.at("best.safetensors").size(),
              outcome.artifacts.at("trained.safetensors").size());
    if (!evaluator) best_of_chief = best;
    EXPECT_TRUE(best == best_of_chief) << "bit for bit";
    EXPECT_THAT(
        outcome.artifacts.at("history.csv"),
        AllOf(HasSubstr("clock,epoch,chief_samples,chief_loss,learning_rate\n"),
              HasSubstr("\n1,1,32,"), HasSubstr("\n30,3,960,")));
  }
  job.clear_export_();
  const auto outcome = Train(/*evaluator=*/false, job);
  ASSERT_OK(outcome.status);
  EXPECT_EQ(outcome.artifacts.count("best.onnx"), 0u);
  for (const Evaluation& evaluation : outcome.evaluations) {
    EXPECT_FALSE(evaluation.best());
  }
}

// The others wait for the chief while it stores a large model.
TEST_F(EvaluationTest, StoringTheBestEpochIsSaid) {
  JobSpec job = ThreeEpochs();
  job.mutable_export_()->set_best_of(LOSS);
  TrainingCluster cluster(Options(/*evaluator=*/false));
  ASSERT_OK(cluster.RunJob(job, Model()).status);
  std::vector<std::string> storing;
  for (const DaemonMessage& message : cluster.Messages(0)) {
    const std::string& activity = message.report().activity();
    if (activity.find("storing") != activity.npos) storing.push_back(activity);
  }
  ASSERT_FALSE(storing.empty());
  EXPECT_EQ(storing.front(),
            absl::StrCat("evaluating clock ", kStepsPerEpoch,
                         ": storing the best parameters, 0 bytes"));
}

TEST_F(EvaluationTest, EveryEpochIsEvaluatedOnceInEveryMode) {
  for (const auto mode :
       {ConsistencySpec::BOUNDED_STALENESS, ConsistencySpec::ASYNC}) {
    SCOPED_TRACE(ConsistencySpec::Mode_Name(mode));
    const auto outcome = Train(/*evaluator=*/true, ThreeEpochs(mode));
    ASSERT_OK(outcome.status);
    EXPECT_EQ(Clocks(outcome.evaluations),
              (std::vector<int64_t>{kStepsPerEpoch, 2 * kStepsPerEpoch,
                                    3 * kStepsPerEpoch}));
  }
}

// An evaluation that is still under way when the next epoch has been trained.
TEST_F(EvaluationTest, TrainingGoesOnMeanwhileUntilTheNextEpochsEnd) {
  absl::Notification trained;
  TrainingCluster::Options options = Options(/*evaluator=*/true);
  options.on_evaluation = [&](const Evaluation& evaluation) {
    if (evaluation.epoch() > 1) return;
    EXPECT_TRUE(trained.WaitForNotificationWithTimeout(kPatience));
  };
  TrainingCluster cluster(options);
  ASSERT_OK(cluster.Prepare(ThreeEpochs(), Model()));
  cluster.Run();
  EXPECT_TRUE(cluster.AwaitClock(0, 2 * kStepsPerEpoch, kPatience));
  EXPECT_THAT(cluster.TakeOutcome().evaluations, IsEmpty());
  trained.Notify();
  EXPECT_OK(cluster.AwaitDone(kPatience));
  EXPECT_OK(cluster.Stop(kPatience));
  EXPECT_EQ(Clocks(cluster.TakeOutcome().evaluations),
            (std::vector<int64_t>{kStepsPerEpoch, 2 * kStepsPerEpoch,
                                  3 * kStepsPerEpoch}));
}

TEST_F(EvaluationTest, IsCountedByWhoEvaluates) {
  MetricsRegistry of_chief;
  MetricsRegistry of_evaluator;
  TrainingCluster::Options options = Options(/*evaluator=*/true);
  options.chief_metrics = &of_chief;
  options.evaluator_metrics = &of_evaluator;
  ASSERT_OK(TrainingCluster(options).RunJob(ThreeEpochs(), Model()).status);
  EXPECT_THAT(of_evaluator.Render(),
              HasSubstr("\nsyncline_worker_evaluated_samples_total 900\n"));
  EXPECT_THAT(of_chief.Render(),
              HasSubstr("\nsyncline_worker_evaluated_samples_total 0\n"));
}

TEST_F(EvaluationTest, AStopEndsTheWaitForAnEpochsEnd) {
  TrainingCluster cluster(Options(/*evaluator=*/true));
  JobSpec job = ThreeEpochs();
  job.mutable_training()->set_epochs(1'000'000);
  ASSERT_OK(cluster.Prepare(job, Model()));
  cluster.Run();
  EXPECT_TRUE(cluster.AwaitClock(1, 1, kPatience));
  EXPECT_OK(cluster.Stop(kPatience));
}

TEST_F(EvaluationTest, AJobWithoutTestDataIsRefused) {
  JobSpec job = ThreeEpochs();
  job.mutable_data()->clear_test();
  EXPECT_THAT(std::string(Train(/*evaluator=*/true, job).status.message()),
              HasSubstr("data.test: missing, and this is the job's evaluator"));
}

TEST_F(EvaluationTest, WithoutKnowingTheJobsLengthItEndsAtOnce) {
  TrainingCluster cluster(Options(/*evaluator=*/true));
  ASSERT_OK(cluster.Prepare(ThreeEpochs(), Model()));
  SchedulerMessage run;
  run.mutable_run()->set_job_id("t-1");
  run.mutable_run()->set_attempt(kTestPass.attempt);
  cluster.Send(kWorkers, run);
  const absl::Status done = cluster.AwaitDone(kPatience);
  EXPECT_EQ(done.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(done.message()), HasSubstr("0 clocks an epoch"));
  EXPECT_OK(cluster.Stop(kPatience));
}

}  // namespace
}  // namespace syncline
