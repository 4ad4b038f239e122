// Goal: an evaluation covers every sample of the split once, in batches of the
// job's size, and ends when the job is stopped.
// Method: a dataset and an executor that record what they are asked.

#include "worker/evaluation/evaluator.h"

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/fakes/counting_dataset.h"

namespace syncline::worker {
namespace {

using ::testing::ElementsAre;

absl::Status Ready(const Batch&) { return absl::OkStatus(); }

// Scores every sample as class 1, at a loss of 2, or what it is told.
class ConstantExecutor final : public Executor {
 public:
  absl::Span<float> parameter(int) override { return {}; }
  absl::Span<float> gradient(int) const override { return {}; }
  std::shared_ptr<SharedRegion> gradient_region() const override {
    return nullptr;
  }
  absl::StatusOr<StepResult> TrainStep(const Batch&, int64_t,
                                       absl::FunctionRef<void(int)>) override {
    return absl::UnimplementedError("an evaluation does not train");
  }
  absl::StatusOr<EvalResult> Evaluate(const Batch& batch) override {
    batches_.push_back(batch.size);
    scores_.assign(static_cast<size_t>(batch.size), 1.0f);
    return EvalResult{.loss_sum = loss_ * static_cast<double>(batch.size),
                      .scores = scores_,
                      .width = 1};
  }
  absl::Status WhyNotFinite(const EvalResult& result) override {
    ++searches_;
    scores_.assign(scores_.size(), -1.0f);  // its memory is used
    return absl::FailedPreconditionError(
        absl::StrCat("the loss is ", result.loss_sum));
  }
  void SetLoss(double loss) { loss_ = loss; }
  int searches() const { return searches_; }
  void UseTables(absl::Span<RowBatch* const>) override {}
  void UseLossScale(float) override {}
  OnDevice on_device() override { return {}; }
  void KeepOnDevice(bool) override {}
  void TakeValuesOnDevice(bool) override {}
  void UseGradientListener(GradientListener*) override {}
  absl::Span<const std::vector<int>> gather_units() const override {
    return {};
  }
  void UseGatherer(ParameterGatherer*) override {}
  void ReleaseParameters() override {}
  void UseRecorder(StepRecorder*) override {}
  void UseStatistics(StatisticsExchange*) override {}
  absl::Status MakeResident(const GoOnCheck&) override {
    return absl::OkStatus();
  }
  int64_t arena_bytes() const override { return 0; }
  int64_t memory_bytes() const override { return 0; }
  const std::vector<int64_t>& batches() const { return batches_; }

 private:
  double loss_ = 2;
  int searches_ = 0;
  std::vector<float> scores_;
  std::vector<int64_t> batches_;
};

JobSpec Spec() {
  JobSpec spec;
  spec.mutable_loss()->set_kind(LossSpec::SIGMOID_CROSS_ENTROPY);
  spec.add_metrics(ACCURACY);
  spec.mutable_training()->set_eval_batch_size(4);
  return spec;
}

TEST(EvaluatorTest, CoversTheWholeSplitInOrder) {
  const CountingDataset dataset(10, /*classes=*/2);
  ConstantExecutor executor;
  Evaluator evaluator(Spec(), &dataset, &executor);
  std::vector<int64_t> done;
  const auto evaluation = evaluator.Run(
      [&](int64_t samples, int64_t total) {
        EXPECT_EQ(total, 10);
        done.push_back(samples);
        return absl::OkStatus();
      },
      Ready);
  ASSERT_TRUE(evaluation.ok()) << evaluation.status();
  EXPECT_THAT(dataset.read(), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
  EXPECT_THAT(executor.batches(), ElementsAre(4, 4, 2));
  EXPECT_THAT(done, ElementsAre(0, 4, 8));
  EXPECT_EQ(evaluation->samples(), 10u);
  EXPECT_DOUBLE_EQ(evaluation->loss(), 2.0);
  EXPECT_DOUBLE_EQ(evaluation->accuracy(), 0.5);
  EXPECT_FALSE(evaluation->has_auc()) << "not asked for";
  EXPECT_GT(evaluation->time().seconds(), 0);
}

TEST(EvaluatorTest, BatchesAreOfOneBucketInFileOrder) {
  const CountingDataset dataset(10, /*classes=*/2,
                                {1, 0, 0, 1, 0, 2, 0, 0, 1, 0});
  ConstantExecutor executor;
  Evaluator evaluator(Spec(), &dataset, &executor);
  std::vector<int64_t> done;
  const auto evaluation = evaluator.Run(
      [&](int64_t samples, int64_t) {
        done.push_back(samples);
        return absl::OkStatus();
      },
      Ready);
  ASSERT_TRUE(evaluation.ok()) << evaluation.status();
  EXPECT_THAT(dataset.read(), ElementsAre(1, 2, 4, 6, 7, 9, 0, 3, 8, 5));
  EXPECT_THAT(executor.batches(), ElementsAre(4, 2, 3, 1));
  EXPECT_THAT(done, ElementsAre(0, 4, 6, 9));
  EXPECT_EQ(evaluation->samples(), 10u);
}

TEST(EvaluatorTest, CanBeRepeated) {
  const CountingDataset dataset(3, /*classes=*/2);
  ConstantExecutor executor;
  Evaluator evaluator(Spec(), &dataset, &executor);
  const auto go_on = [](int64_t, int64_t) { return absl::OkStatus(); };
  ASSERT_TRUE(evaluator.Run(go_on, Ready).ok());
  EXPECT_EQ(evaluator.Run(go_on, Ready)->samples(), 3u);
}

TEST(EvaluatorTest, ALossThatIsNotFiniteFailsOrIsRecorded) {
  const CountingDataset dataset(10, /*classes=*/2);
  const auto go_on = [](int64_t, int64_t) { return absl::OkStatus(); };
  for (const auto policy : {NON_FINITE_POLICY_UNSPECIFIED, FAIL_JOB}) {
    ConstantExecutor executor;
    executor.SetLoss(std::numeric_limits<double>::infinity());
    JobSpec spec = Spec();
    spec.set_non_finite(policy);
    Evaluator evaluator(spec, &dataset, &executor);
    EXPECT_EQ(evaluator.Run(go_on, Ready).status(),
              absl::FailedPreconditionError("the loss is inf"));
  }
  for (const auto policy : {SKIP_STEP, DROP_BLOCK}) {
    ConstantExecutor executor;
    executor.SetLoss(std::numeric_limits<double>::quiet_NaN());
    JobSpec spec = Spec();
    spec.set_non_finite(policy);
    Evaluator evaluator(spec, &dataset, &executor);
    const auto evaluation = evaluator.Run(go_on, Ready);
    ASSERT_TRUE(evaluation.ok()) << evaluation.status();
    EXPECT_TRUE(std::isnan(evaluation->loss()));
    EXPECT_DOUBLE_EQ(evaluation->accuracy(), 0.5) << "read before the search";
    EXPECT_EQ(evaluator.not_finite(), "the loss is nan");
    EXPECT_EQ(executor.searches(), 1) << "the first batch tells";
    executor.SetLoss(0);
    const auto finite = evaluator.Run(go_on, Ready);
    ASSERT_TRUE(finite.ok()) << finite.status();
    EXPECT_TRUE(finite->has_loss());
    EXPECT_EQ(finite->loss(), 0);
    EXPECT_EQ(evaluator.not_finite(), "");
  }
}

TEST(EvaluatorTest, EndsBeforeTheBatchThatIsNotWanted) {
  const CountingDataset dataset(10, /*classes=*/2);
  ConstantExecutor executor;
  Evaluator evaluator(Spec(), &dataset, &executor);
  const auto evaluation = evaluator.Run(
      [](int64_t done, int64_t) {
        return done < 4 ? absl::OkStatus() : absl::CancelledError("stopped");
      },
      Ready);
  EXPECT_EQ(evaluation.status(), absl::CancelledError("stopped"));
  EXPECT_THAT(executor.batches(), ElementsAre(4));
}

}  // namespace
}  // namespace syncline::worker
