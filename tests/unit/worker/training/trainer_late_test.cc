// Goal: a worker that was left behind pushes the gradient that it has at the
// open clock, changed as the job says, and goes on behind it; it is counted
// once. Method: a trainer with a real executor and an exchange that says which
// clocks were made without this rank, and looks at what is handed over.

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/daemon/metrics.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/assigned_job.h"
#include "tests/testing/fakes/idle_exchange.h"
#include "tests/testing/job_builder.h"
#include "tests/testing/status_matchers.h"
#include "worker/training/trainer.h"

namespace syncline::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A step as the trainer handed it over.
struct Handed {
  int64_t clock = 0;
  uint64_t samples = 0;
  std::vector<float> gradient;  // of the last parameter
  std::vector<float> value;     // of the same, that the step computes with
};

// The others have made the clocks below `open` while this rank made clock 0,
// and are in time with it from then on, unless they leave the next one behind,
// too.
class BehindExchange final : public IdleExchange {
 public:
  BehindExchange(const PreparedJob* job, std::vector<Handed>* handed,
                 int64_t open, bool behind_again)
      : job_(*job),
        handed_(*handed),
        open_(open),
        behind_again_(behind_again) {}

  absl::Status Pull(int64_t clock) override {
    SetValues(clock);
    return absl::OkStatus();
  }
  void BeginStep(const Step& step) override {
    handed_.push_back({.clock = step.clock, .samples = step.sample_count});
    handed_.back().value = ValueOf();
  }
  void EndBackward(absl::Span<RowBatch* const>) override {
    const auto gradient = job_.executor->gradient(Last());
    handed_.back().gradient = {gradient.begin(), gradient.end()};
  }
  absl::Status Wait() override {
    SetValues(handed_.back().clock + 1);
    return absl::OkStatus();
  }
  int64_t open_clock() const override {
    if (handed_.empty()) return 0;
    if (behind_again_ && handed_.size() == 2) return 5;
    return std::max<int64_t>(open_, handed_.back().clock + 1);
  }
  bool was_left_behind(int64_t clock) const override {
    return clock == 0 || (behind_again_ && clock == 3);
  }
  bool step_abandoned() const override {
    return !handed_.empty() && handed_.back().clock == abandoned_;
  }
  // The gradient of this clock is left out, because it is not finite.
  void Abandon(int64_t clock) { abandoned_ = clock; }

 private:
  int Last() const {
    return static_cast<int>(job_.training.parameters.size()) - 1;
  }
  std::vector<float> ValueOf() const {
    const auto value = job_.executor->parameter(Last());
    return {value.begin(), value.end()};
  }
  // Each clock has values of its own.
  void SetValues(int64_t clock) {
    for (float& value : job_.executor->parameter(Last())) {
      value = 0.125f * static_cast<float>(clock);
    }
  }

  const PreparedJob& job_;
  std::vector<Handed>& handed_;
  const int64_t open_;
  const bool behind_again_;
  int64_t abandoned_ = -1;
};

class TrainerLateTest : public ::testing::Test {
 protected:
  // Trains rank 1 of two workers to the end; eight clocks of 8 samples each.
  void Train(const std::string& late, bool behind_again = false) {
    JobSpec job = Job(late);
    job.mutable_data()->clear_test();
    Run(job, /*rank=*/1, /*open=*/3, behind_again);
  }
  static JobSpec Job(const std::string& late) {
    JobSpec job = DigitsJob();
    job.mutable_data()->mutable_train()->mutable_digits()->set_count(128);
    job.mutable_training()->set_batch_size(8);
    job.mutable_training()->set_epochs(1);
    job.MergeFrom(JobFromText(
        absl::StrCat("consistency { mode: SYNC_WITH_BACKUPS needed: 1 ", late,
                     " } resources { workers: 2 }")));
    return job;
  }
  void Run(const JobSpec& job, uint32_t rank, int64_t open, bool behind_again) {
    const std::string text = MlpModel(784, 4, 10);
    AssignedJob assigned = AssignToOne(job, text);
    assigned.assignment.add_workers();
    PrepareOptions options;
    options.shared_memory = false;
    std::vector<std::string> problems;
    job_ = PrepareJob(assigned.assignment, rank, text, options, &problems);
    ASSERT_THAT(problems, IsEmpty());
    JobExchange exchange;
    auto behind = std::make_unique<BehindExchange>(job_.get(), &handed_, open,
                                                   behind_again);
    behind->Abandon(abandoned_);
    exchange.parameters = std::move(behind);
    Trainer::Options trainer;
    trainer.metrics = &metrics_;
    trainer.on_progress = [](const WorkerProgress&) {};
    trainer.on_evaluation = [](const Evaluation&, const StoringProgress&) {};
    trainer_ = std::make_unique<Trainer>(*job_, std::move(exchange), trainer);
    ASSERT_OK(trainer_->Run());
  }
  std::vector<int64_t> Clocks() const {
    std::vector<int64_t> clocks;
    for (const Handed& step : handed_) clocks.push_back(step.clock);
    return clocks;
  }

  // Late gradients that were applied, of all runs of this test.
  double LateGradients() const {
    const std::string name = "\nsyncline_worker_late_gradients_total ";
    const std::string text = registry_.Render();
    const size_t at = text.find(name);
    EXPECT_NE(at, std::string::npos);
    return std::stod(text.substr(at + name.size()));
  }

  MetricsRegistry registry_;
  WorkerMetrics metrics_{&registry_};
  int64_t abandoned_ = -1;
  std::vector<Handed> handed_;
  std::unique_ptr<PreparedJob> job_;
  std::unique_ptr<Trainer> trainer_;
};

TEST_F(TrainerLateTest, ADroppedGradientIsComputedAnewAtTheOpenClock) {
  Train("late: DROP");
  EXPECT_THAT(Clocks(), ElementsAre(0, 3, 4, 5, 6, 7));
  EXPECT_NE(handed_[1].gradient, handed_[0].gradient);
  EXPECT_EQ(trainer_->Totals().samples(), 5 * 8u);
}

TEST_F(TrainerLateTest, AScaledOneIsPushedAtTheOpenClock) {
  Train("late: SCALE");
  EXPECT_THAT(Clocks(), ElementsAre(0, 3, 4, 5, 6, 7));
  std::vector<float> scaled = handed_[0].gradient;
  for (float& value : scaled) value *= 0.25f;
  EXPECT_EQ(handed_[1].gradient, scaled) << "three clocks late";
  EXPECT_EQ(handed_[1].samples, 8u);
  EXPECT_NE(handed_[2].gradient, scaled);
  EXPECT_EQ(trainer_->Totals().samples(), 6 * 8u - 8) << "counted once";
  EXPECT_EQ(LateGradients(), 1);
  // Clock 4 has its own batch: that of a job that was left behind likewise.
  const std::vector<float> at_4 = handed_[2].gradient;
  handed_.clear();
  Train("late: DROP");
  EXPECT_EQ(handed_[2].gradient, at_4);
}

TEST_F(TrainerLateTest, ACompensatedOneKnowsBothValues) {
  Train("late: COMPENSATE compensation: 2");
  EXPECT_THAT(Clocks(), ElementsAre(0, 3, 4, 5, 6, 7));
  for (size_t i = 0; i < handed_[0].gradient.size(); ++i) {
    const float g = handed_[0].gradient[i];
    const float change = handed_[1].value[i] - handed_[0].value[i];
    EXPECT_FLOAT_EQ(change, 0.375f);
    EXPECT_NEAR(handed_[1].gradient[i], g + 2.0f / 8 * g * g * change, 1e-5);
  }
}

// The others have come to the end of the first epoch. The chief evaluates
// there, which uses the memory that its late gradient is in.
TEST_F(TrainerLateTest, AnEvaluationForgetsIt) {
  std::vector<std::vector<float>> gradients;
  for (const char* late : {"late: DROP", "late: SCALE"}) {
    JobSpec job = Job(late);
    job.mutable_data()->mutable_train()->mutable_digits()->set_count(64);
    job.mutable_data()->mutable_test()->mutable_digits()->set_count(40);
    job.mutable_training()->set_epochs(2);
    handed_.clear();
    Run(job, /*rank=*/0, /*open=*/4, /*behind_again=*/false);
    ASSERT_THAT(Clocks(), ElementsAre(0, 4, 5, 6, 7));
    EXPECT_EQ(trainer_->evaluations().size(), 2u);
    gradients.push_back(handed_[1].gradient);
  }
  EXPECT_EQ(gradients[0], gradients[1]) << "computed anew";
}

// Its correction has overflowed, say.
TEST_F(TrainerLateTest, AnAbandonedOneIsNotCounted) {
  abandoned_ = 3;
  Train("late: SCALE");
  EXPECT_THAT(Clocks(), ElementsAre(0, 3, 4, 5, 6, 7));
  EXPECT_EQ(trainer_->Totals().samples(), 4 * 8u);
  EXPECT_EQ(LateGradients(), 0);
}

TEST_F(TrainerLateTest, WhatIsLateAgainIsDropped) {
  Train("late: SCALE", /*behind_again=*/true);
  EXPECT_THAT(Clocks(), ElementsAre(0, 3, 5, 6, 7));
  EXPECT_EQ(trainer_->Totals().samples(), 3 * 8u);
}

}  // namespace
}  // namespace syncline::worker
