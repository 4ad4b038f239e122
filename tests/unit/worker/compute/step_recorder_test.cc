// Goal: a recording has each piece of work once, in order and inside its step,
// and without a request nothing is recorded. Method: a recorder driven by hand,
// then by an executor whose graph has every kind of pass.

#include "worker/compute/step_recorder.h"

#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "tests/testing/training_model.h"

namespace syncline::worker {
namespace {

using ::testing::ElementsAre;
using testing::MakeTrainingModel;
using testing::TrainingModel;

// "FORWARD a" for each interval.
std::vector<std::string> Intervals(const StepProfile& profile) {
  std::vector<std::string> all;
  for (const uint32_t index : profile.interval_activity()) {
    const StepProfile::Activity& activity = profile.activities(index);
    all.push_back(absl::StrCat(StepProfile::Kind_Name(activity.kind()),
                               activity.node().empty() ? "" : " ",
                               activity.node()));
  }
  return all;
}

// Intervals follow one another, and lie in the steps.
void ExpectInOrder(const StepProfile& profile) {
  uint64_t end = 0;
  for (int i = 0; i < profile.interval_activity_size(); ++i) {
    EXPECT_GE(profile.interval_begin_ns(i), end) << i;
    end = profile.interval_begin_ns(i) + profile.interval_duration_ns(i);
  }
  const StepProfile::Step& last = profile.steps(profile.steps_size() - 1);
  EXPECT_LE(end, last.begin_ns() + last.duration_ns());
}

// A scheduler of another version may send any number of steps.
TEST(StepRecorderTest, StepsAreAtLeastOneAndNoMoreThanMayBeAskedFor) {
  StepRecorder none(0);
  EXPECT_FALSE(none.done());
  none.BeginStep(1);
  none.EndStep(/*samples=*/32);
  EXPECT_TRUE(none.done());
  StepRecorder many(~uint32_t{0});
  for (uint32_t clock = 0; clock < kProfileStepsMax; ++clock) {
    ASSERT_FALSE(many.done());
    many.BeginStep(clock);
    many.EndStep(/*samples=*/32);
  }
  EXPECT_TRUE(many.done());
}

TEST(StepRecorderTest, RecordsItsStepsAndNoMore) {
  Node node;
  node.name = "fc";
  node.op_type = "Gemm";
  StepRecorder recorder(2);
  for (const int64_t clock : {41, 42}) {
    EXPECT_FALSE(recorder.done());
    recorder.BeginStep(clock);
    {
      const StepRecorder::Interval forward(&recorder, StepProfile::FORWARD,
                                           &node);
    }
    { const StepRecorder::Interval loss(&recorder, StepProfile::LOSS); }
    recorder.EndStep(/*samples=*/32);
  }
  EXPECT_TRUE(recorder.done());
  const StepProfile& profile = recorder.profile();
  ASSERT_EQ(profile.steps_size(), 2);
  EXPECT_EQ(profile.steps(1).clock(), 42);
  EXPECT_EQ(profile.steps(1).samples(), 32u);
  EXPECT_EQ(profile.steps(0).begin_ns(), 0u);
  EXPECT_THAT(Intervals(profile),
              ElementsAre("FORWARD fc", "LOSS", "FORWARD fc", "LOSS"));
  EXPECT_EQ(profile.activities_size(), 2);
  EXPECT_EQ(profile.activities(0).op_type(), "Gemm");
  ExpectInOrder(profile);
}

TEST(StepRecorderTest, WhatHasEndedIsLaidOneBehindTheOther) {
  StepRecorder recorder(1);
  recorder.BeginStep(0);
  const absl::Time begin = absl::Now();
  std::this_thread::sleep_for(std::chrono::milliseconds(3));
  const absl::Duration half = (absl::Now() - begin) / 2;
  recorder.AddLast({{StepProfile::PUSH, half},
                    {StepProfile::WAIT, absl::ZeroDuration()},
                    {StepProfile::PULL, half}});
  recorder.EndStep(1);
  const StepProfile& profile = recorder.profile();
  // An interval that took no time is not recorded.
  EXPECT_THAT(Intervals(profile), ElementsAre("PUSH", "PULL"));
  EXPECT_EQ(profile.interval_begin_ns(1),
            profile.interval_begin_ns(0) + profile.interval_duration_ns(0));
  ExpectInOrder(profile);
}

TEST(StepRecorderTest, AnIntervalInsideAnotherCutsItInTwo) {
  StepRecorder recorder(1);
  recorder.BeginStep(0);
  {
    const StepRecorder::Interval forward(&recorder, StepProfile::FORWARD);
    { const StepRecorder::Interval wait(&recorder, StepProfile::WAIT); }
  }
  { const StepRecorder::Interval loss(&recorder, StepProfile::LOSS); }
  recorder.EndStep(1);
  const StepProfile& profile = recorder.profile();
  EXPECT_THAT(Intervals(profile),
              ElementsAre("FORWARD", "WAIT", "FORWARD", "LOSS"));
  for (const int i : {0, 1}) {
    EXPECT_EQ(profile.interval_begin_ns(i + 1),
              profile.interval_begin_ns(i) + profile.interval_duration_ns(i));
  }
  ExpectInOrder(profile);
}

TEST(StepRecorderTest, WithoutARecorderNothingHappens) {
  const StepRecorder::Interval interval(nullptr, StepProfile::FORWARD);
}

TEST(StepRecorderTest, TooMuchIsCutOff) {
  StepRecorder recorder(1);
  recorder.BeginStep(0);
  for (int i = 0; i <= StepRecorder::kIntervalsMax; ++i) {
    const StepRecorder::Interval interval(&recorder, StepProfile::LOSS);
  }
  recorder.EndStep(1);
  EXPECT_TRUE(recorder.profile().truncated());
  EXPECT_EQ(recorder.profile().interval_activity_size(),
            StepRecorder::kIntervalsMax);
}

// A plan may be gone, and its nodes' memory another one's, before the profile
// is done; the next plan has nodes of the same names.
TEST(StepRecorderTest, ANodeIsKnownByItsNameAndOperator) {
  StepRecorder recorder(1);
  recorder.BeginStep(0);
  Node node;
  const auto record = [&](const char* name, const char* op_type) {
    node.name = name;
    node.op_type = op_type;
    const StepRecorder::Interval interval(&recorder, StepProfile::FORWARD,
                                          &node);
  };
  record("a", "MatMul");
  record("b", "MatMul");
  record("a", "MatMul + Add");
  const Node copy = {.name = "a", .op_type = "MatMul"};
  {
    const StepRecorder::Interval interval(&recorder, StepProfile::FORWARD,
                                          &copy);
  }
  recorder.EndStep(1);
  EXPECT_THAT(recorder.profile().interval_activity(), ElementsAre(0, 1, 2, 0));
  EXPECT_EQ(recorder.profile().activities(2).op_type(), "MatMul + Add");
}

TEST(StepRecorderTest, AnExecutorRecordsEveryNodeOnce) {
  const TrainingModel model = MakeTrainingModel(
      "(float[N,4] x, float[4] w_a, float[4] w_b) => (float[N,4] y)", "",
      "a = Mul(x, w_a)\n v = Identity(a)\n t = Mul(v, v)\n b = Mul(t, w_b)\n"
      "y = Tanh(b)");
  const auto record = [&](int segments, int64_t parts) {
    Executor::Options options;
    options.loss.set_kind(LossSpec::MEAN_SQUARED_ERROR);
    options.batch_size = 2;
    options.recompute_segments = segments;
    options.micro_batches = parts;
    const auto executor =
        *Executor::Create(model.model, model.training, options);
    Batch batch;
    batch.size = 2;
    batch.feeds = {std::vector<float>(8, 0.5f)};
    batch.labels.assign(8, 0.25f);
    batch.label_width = 4;
    StepRecorder recorder(1);
    executor->UseRecorder(&recorder);
    recorder.BeginStep(0);
    EXPECT_TRUE(executor->TrainStep(batch, 0, [](int) {}).ok());
    recorder.EndStep(2);
    executor->UseRecorder(nullptr);
    EXPECT_TRUE(executor->TrainStep(batch, 1, [](int) {}).ok());
    ExpectInOrder(recorder.profile());
    return Intervals(recorder.profile());
  };
  // A view is not run.
  EXPECT_THAT(
      record(1, 1),
      ElementsAre("FORWARD Mul#0", "FORWARD Mul#2", "FORWARD Mul#3",
                  "FORWARD Tanh#4", "LOSS", "BACKWARD Tanh#4", "BACKWARD Mul#3",
                  "BACKWARD Mul#2", "BACKWARD Mul#0"));
  EXPECT_EQ(record(1, 2).size(), 2 * 9u);
  EXPECT_THAT(record(2, 1), ::testing::Contains("RECOMPUTED Mul#0"));
}

}  // namespace
}  // namespace syncline::worker
