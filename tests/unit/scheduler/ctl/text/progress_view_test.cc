// Goal: a watched job is told once per fact, not too often, and never wraps a
// terminal's line. Method: a job's life as a list of statuses and times.

#include "scheduler/ctl/text/progress_view.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline::ctl {
namespace {

using Style = ProgressView::Style;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

absl::Time At(double seconds) {
  return absl::UnixEpoch() + absl::Seconds(seconds);
}

JobStatus Running(int64_t clock) {
  JobStatus job;
  job.set_state(RUNNING);
  job.mutable_progress()->set_clock(clock);
  job.mutable_progress()->set_clocks_total(100);
  job.mutable_progress()->set_epoch(1);
  job.mutable_progress()->set_epochs_total(2);
  return job;
}

Evaluation AfterEpoch(uint32_t epoch) {
  Evaluation evaluation;
  evaluation.set_epoch(epoch);
  evaluation.set_accuracy(0.5);
  return evaluation;
}

TEST(ProgressViewTest, SaysEachStateOnce) {
  ProgressView view(Style::kLines, 80);
  JobStatus job;
  job.set_state(QUEUED);
  EXPECT_EQ(view.Update(job, At(0)), "queued\n");
  EXPECT_EQ(view.Update(job, At(1)), "");
  job.set_waiting_for("1 more worker");
  EXPECT_EQ(view.Update(job, At(2)), "queued: 1 more worker\n");
  job.set_state(PREPARING);
  job.add_workers();
  job.add_ps();
  EXPECT_EQ(view.Update(job, At(3)), "preparing on 1 worker and 1 ps\n");
  job.set_state(RUNNING);
  job.clear_waiting_for();
  EXPECT_EQ(view.Update(job, At(4)), "running\n");
  job.set_waiting_for("evaluator 0 at h:1");
  EXPECT_EQ(view.Update(job, At(5)), "waiting for evaluator 0 at h:1\n");
}

TEST(ProgressViewTest, AJobThatTrainsNothingHasNoWorkersAndEpochs) {
  for (const TaskType type : {EVALUATOR, WORKER}) {
    ProgressView view(Style::kLines, 80);
    JobStatus job;
    job.mutable_spec()->mutable_evaluate()->set_only(true);
    job.set_state(PREPARING);
    job.add_workers()->mutable_member()->mutable_task()->set_type(type);
    EXPECT_EQ(view.Update(job, At(0)),
              type == EVALUATOR ? "preparing an evaluation on an evaluator\n"
                                : "preparing an evaluation on a worker\n");
    job.set_state(RUNNING);
    job.mutable_progress()->set_clocks_total(100);
    EXPECT_EQ(view.Update(job, At(1)), "running\n");
    Evaluation* const evaluation = job.add_evaluations();
    evaluation->set_epoch(1);
    evaluation->set_clock(100);
    EXPECT_EQ(view.Update(job, At(2)),
              "clock 100: test loss 0.0000 (0 samples)\n");
  }
}

TEST(ProgressViewTest, WarningsAmongTheReasonsAreShownOnce) {
  ProgressView view(Style::kLines, 80);
  JobStatus job;
  job.set_state(PREPARING);
  job.add_transitions()->set_reason("on 1 worker and 1 ps");
  view.Update(job, At(0));
  job.set_state(RUNNING);
  job.add_transitions()->set_reason(
      "all participants are prepared\nwarning: much to do");
  EXPECT_EQ(view.Update(job, At(1)), "running\nwarning: much to do\n");
  EXPECT_EQ(view.Update(job, At(2)), "");
}

TEST(ProgressViewTest, EachChangeOfTheRegimeIsALine) {
  ProgressView view(Style::kLines, 80);
  JobStatus job = Running(0);
  job.add_regimes()->mutable_regime()->mutable_consistency()->set_mode(
      ConsistencySpec::SYNC);
  EXPECT_THAT(view.Update(job, At(0)), Not(HasSubstr("regime")));
  RegimeTransition* const change = job.add_regimes();
  change->mutable_regime()->mutable_consistency()->set_mode(
      ConsistencySpec::ASYNC);
  change->mutable_regime()->set_first_clock(40);
  change->set_reason("rule 1: loss below 0.5");
  change->set_pause_seconds(0.0121);
  EXPECT_EQ(view.Update(job, At(0)),
            "regime: from clock 40  ASYNC (rule 1: loss below 0.5, pause "
            "0.012 s)\n");
  EXPECT_EQ(view.Update(job, At(0.1)), "");
  RegimeTransition* const failed = job.add_regimes();
  failed->set_error("worker:1 cannot");
  failed->set_reason("synctl regime");
  EXPECT_EQ(view.Update(job, At(0.2)),
            "regime: not made: worker:1 cannot (synctl regime)\n");
}

TEST(ProgressViewTest, LinesComeAtMostOnceASecondAndOnlyWithProgress) {
  ProgressView view(Style::kLines, 80);
  EXPECT_THAT(view.Update(Running(1), At(0)), HasSubstr("step 1/100"));
  EXPECT_EQ(view.Update(Running(2), At(0.5)), "");
  EXPECT_THAT(view.Update(Running(3), At(1.5)), HasSubstr("step 3/100"));
  EXPECT_EQ(view.Update(Running(3), At(9)), "");
}

TEST(ProgressViewTest, EveryEvaluationIsALineWhateverTheTime) {
  ProgressView view(Style::kLines, 80);
  view.Update(Running(1), At(0));
  JobStatus job = Running(50);
  *job.add_evaluations() = AfterEpoch(1);
  EXPECT_THAT(view.Update(job, At(0.1)), StartsWith("epoch 1: test loss"));
  EXPECT_EQ(view.Update(job, At(0.2)), "");
  *job.add_evaluations() = AfterEpoch(2);
  job.set_state(SUCCEEDED);
  EXPECT_THAT(view.Update(job, At(0.3)), StartsWith("epoch 2: test loss"));
}

TEST(ProgressViewTest, TheLiveLineIsErasedBeforeOtherLines) {
  ProgressView view(Style::kLive, 100);
  EXPECT_EQ(view.Finish(), "") << "nothing to erase yet";
  const std::string first = view.Update(Running(50), At(0));
  EXPECT_THAT(first, StartsWith("running\n\r\033[K[############............] "
                                "50%  epoch 1/2"));
  JobStatus job = Running(51);
  *job.add_evaluations() = AfterEpoch(1);
  EXPECT_THAT(view.Update(job, At(0.1)), StartsWith("\r\033[Kepoch 1: test"));
  EXPECT_EQ(view.Finish(), "\r\033[K");
  EXPECT_EQ(view.Finish(), "");
}

TEST(ProgressViewTest, TheLiveLineFitsEveryTerminal) {
  for (int width = 2; width < 200; ++width) {
    ProgressView view(Style::kLive, width);
    const std::string text = view.Update(Running(50), At(0));
    const std::string line = text.substr(text.rfind('K') + 1);
    EXPECT_LT(line.size(), static_cast<size_t>(width));
    const std::string numbers = "50%  epoch 1/2  step 50/100";
    if (width > static_cast<int>(numbers.size())) {
      EXPECT_THAT(line, HasSubstr(numbers)) << "the bar goes first";
    }
  }
}

TEST(ProgressViewTest, SilenceIsToldNowAndThen) {
  ProgressView lines(Style::kLines, 80);
  EXPECT_EQ(lines.Silence(absl::Seconds(5.1)),
            "no news from the scheduler for 5 s\n");
  EXPECT_EQ(lines.Silence(absl::Seconds(9)), "");
  EXPECT_THAT(lines.Silence(absl::Seconds(10.2)), HasSubstr("for 10 s"));
  lines.Update(Running(1), At(0));
  EXPECT_THAT(lines.Silence(absl::Seconds(5.1)), HasSubstr("for 5 s"));
  // Live it replaces the progress, which replaces it again.
  ProgressView live(Style::kLive, 80);
  live.Update(Running(1), At(0));
  EXPECT_EQ(live.Silence(absl::Seconds(6)),
            "\r\033[Kno news from the scheduler for 6 s");
  EXPECT_THAT(live.Update(Running(2), At(1)), StartsWith("\r\033[K"));
  EXPECT_EQ(ProgressView(Style::kJson, 80).Silence(absl::Seconds(6)),
            "{\"warning\":\"no news from the scheduler for 6 s\"}\n");
}

TEST(ProgressViewTest, JsonPassesEveryStatusOn) {
  ProgressView view(Style::kJson, 80);
  for (int i = 0; i < 2; ++i) {
    const std::string line = view.Update(Running(1), At(0));
    EXPECT_THAT(line, HasSubstr("\"state\":\"RUNNING\""));
    EXPECT_EQ(line.find('\n'), line.size() - 1);
  }
}

}  // namespace
}  // namespace syncline::ctl
