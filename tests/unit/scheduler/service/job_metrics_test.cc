// Goal: an on-call sees of each job that is not over where it is, how fast, how
// good, and since when it stands still; of one that is over nothing is left.
// Method: a core with a job, fed with its workers' reports, and the text that
// is served.

#include "scheduler/service/job_metrics.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/daemon/metrics.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/scheduler/core/cluster/cluster_core_fixture.h"

namespace syncline::scheduler {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class JobMetricsTest : public ClusterCoreTest {
 protected:
  // A job of one ps and two workers, which runs.
  void Run() {
    Join(1, PS, 0, 21);
    Join(2, CHIEF, 0, 22);
    Join(3, WORKER, 0, 23);
    job_ = Submit(2, 1, /*with_test=*/true);
    Pass(CoreOptions().settle + absl::Seconds(1), {1, 2, 3});
    for (SessionId session : {1, 2, 3}) Prepared(session, job_);
    ASSERT_EQ(State(job_), RUNNING);
  }
  void Report(SessionId session, int64_t clock, double loss) {
    DaemonMessage message;
    WorkerReport* const report = message.mutable_report();
    report->set_job_id(job_);
    WorkerProgress* const progress = report->mutable_progress();
    progress->set_clock(clock);
    progress->set_clocks_total(100);
    progress->set_loss(loss);
    progress->set_samples_per_second(50);
    progress->set_wait_seconds(3);
    progress->set_forward_seconds(1);
    progress->set_backward_seconds(2);
    core_.OnMessage(session, message, now_, &actions_);
  }
  void Evaluate(int64_t clock, double loss) {
    DaemonMessage message;
    WorkerReport* const report = message.mutable_report();
    report->set_job_id(job_);
    report->mutable_evaluation()->set_epoch(1);
    report->mutable_evaluation()->set_clock(clock);
    report->mutable_evaluation()->set_loss(loss);
    core_.OnMessage(2, message, now_, &actions_);
  }
  std::string Rendered() {
    MetricsRegistry registry;
    const auto collecting = registry.AddCollector([&](MetricSamples* samples) {
      metrics_.Collect(core_, now_, samples);
    });
    return registry.Render();
  }

  JobMetrics metrics_;
  std::string job_;
};

TEST_F(JobMetricsTest, AQueuedJobSaysForHowLongItWaits) {
  Submit(2, 1);
  now_ += absl::Seconds(40);
  metrics_.Observe(core_, now_);
  EXPECT_THAT(Rendered(),
              AllOf(HasSubstr("syncline_job_state_seconds{job=\"j-0001\","
                              "state=\"queued\"} 40\n"),
                    HasSubstr("syncline_job_attempts_total{job=\"j-0001\"} 0"),
                    Not(HasSubstr("syncline_job_clock"))));
}

TEST_F(JobMetricsTest, ARunningJobSaysHowFarItIs) {
  ASSERT_NO_FATAL_FAILURE(Run());
  Report(2, 10, 0.5);
  Report(3, 8, 1.5);
  Evaluate(5, 2.5);
  metrics_.Observe(core_, now_);
  const std::string text = Rendered();
  EXPECT_THAT(
      text,
      AllOf(HasSubstr("syncline_job_clock{job=\"j-0001\"} 8\n"),
            HasSubstr("syncline_job_planned_clocks{job=\"j-0001\"} 100\n"),
            HasSubstr("syncline_job_loss{job=\"j-0001\"} 1\n"),
            HasSubstr("syncline_job_samples_per_second{job=\"j-0001\"} 100\n"),
            HasSubstr("syncline_job_evaluation_lag_clocks{job=\"j-0001\"} 3\n"),
            HasSubstr("syncline_job_evaluation_loss{job=\"j-0001\"} 2.5\n"),
            HasSubstr("syncline_job_regime{job=\"j-0001\",mode=\"sync\"} 1\n"),
            HasSubstr("syncline_job_regime_changes_total{job=\"j-0001\"} 0\n"),
            HasSubstr("syncline_job_attempts_total{job=\"j-0001\"} 1\n")));
  EXPECT_THAT(
      text,
      AllOf(HasSubstr("syncline_job_worker_clock{job=\"j-0001\",rank=\"0\"} "
                      "10\n"),
            HasSubstr("syncline_job_worker_clock{job=\"j-0001\",rank=\"1\"} "
                      "8\n"),
            HasSubstr("syncline_job_worker_training_seconds_total{job="
                      "\"j-0001\",phase=\"wait\",rank=\"1\"} 3\n"),
            HasSubstr("syncline_job_worker_compute_seconds_total{job="
                      "\"j-0001\",part=\"backward\",rank=\"1\"} 2\n"),
            HasSubstr("syncline_job_worker_compute_seconds_total{job="
                      "\"j-0001\",part=\"forward\",rank=\"1\"} 1\n")));
}

TEST_F(JobMetricsTest, AJobThatComesForwardIsNotIdle) {
  ASSERT_NO_FATAL_FAILURE(Run());
  const auto idle = [&](int seconds) {
    return HasSubstr("syncline_job_idle_seconds{job=\"j-0001\"} " +
                     std::to_string(seconds) + "\n");
  };
  Report(2, 10, 0.5);
  Report(3, 8, 1.5);
  metrics_.Observe(core_, now_);
  now_ += absl::Seconds(7);
  metrics_.Observe(core_, now_);
  EXPECT_THAT(Rendered(), idle(7));
  // The others come forward, but not the job.
  Report(2, 11, 0.5);
  metrics_.Observe(core_, now_);
  now_ += absl::Seconds(2);
  EXPECT_THAT(Rendered(), idle(9));
  Report(3, 9, 0.5);
  EXPECT_THAT(Rendered(), idle(0)) << "before it was noticed";
  metrics_.Observe(core_, now_);
  now_ += absl::Seconds(1);
  EXPECT_THAT(Rendered(), idle(1));
  Evaluate(5, 1);
  metrics_.Observe(core_, now_);
  EXPECT_THAT(Rendered(), idle(0));
  // A long evaluation: its text is no wait, and changes.
  for (int i = 0; i < 3; ++i) {
    now_ += absl::Seconds(60);
    DaemonMessage message;
    message.mutable_report()->set_job_id(job_);
    message.mutable_report()->set_activity(
        absl::StrCat("evaluating, ", i, " of 30"));
    core_.OnMessage(2, message, now_, &actions_);
    metrics_.Observe(core_, now_);
    EXPECT_THAT(Rendered(), idle(0));
  }
  now_ += absl::Seconds(60);
  metrics_.Observe(core_, now_);
  EXPECT_THAT(Rendered(), idle(60));
  // Results that nobody takes.
  for (int i = 0; i < 3; ++i) {
    DaemonMessage message;
    message.mutable_report()->set_job_id(job_);
    message.mutable_report()->set_activity(
        absl::StrCat("trained.onnx is not stored; given up in 1", 9 - i, "m",
                     5 * i, "s: the disk is full"));
    core_.OnMessage(2, message, now_, &actions_);
    metrics_.Observe(core_, now_);
    now_ += absl::Seconds(5);
  }
  EXPECT_THAT(Rendered(), idle(15));
}

TEST_F(JobMetricsTest, AJobSaysHowOldItsCheckpointIs) {
  Join(1, PS, 0, 21);
  Join(2, CHIEF, 0, 22);
  JobSpec spec;
  spec.mutable_resources()->set_workers(1);
  spec.mutable_resources()->set_ps(1);
  spec.mutable_checkpoint()->set_every_seconds(60);
  auto job = core_.Prepare(spec, {}, {}, core_.NextJobId(), now_);
  ASSERT_TRUE(job.ok()) << job.status();
  job_ = job->status.job_id();
  core_.Submit(*job, now_, &actions_);
  Pass(CoreOptions().settle + absl::Seconds(1), {1, 2});
  metrics_.Observe(core_, now_);
  EXPECT_THAT(Rendered(), Not(HasSubstr("syncline_job_checkpoint")));
  for (SessionId session : {1, 2}) Prepared(session, job_);
  ASSERT_EQ(State(job_), RUNNING);
  const auto age = [&](int seconds) {
    return HasSubstr("syncline_job_checkpoint_age_seconds{job=\"j-0001\"} " +
                     std::to_string(seconds) + "\n");
  };
  metrics_.Observe(core_, now_);
  now_ += absl::Seconds(7);
  metrics_.Observe(core_, now_);
  EXPECT_THAT(
      Rendered(),
      AllOf(
          age(7),
          HasSubstr(
              "syncline_job_checkpoint_period_seconds{job=\"j-0001\"} 60\n")));
  DaemonMessage message;
  message.mutable_report()->set_job_id(job_);
  message.mutable_report()->set_attempt(1);
  message.mutable_report()->mutable_checkpoint()->set_path("/c/1");
  message.mutable_report()->mutable_checkpoint()->set_clock(5);
  core_.OnMessage(2, message, now_, &actions_);
  EXPECT_THAT(Rendered(), age(0)) << "before it was noticed";
  metrics_.Observe(core_, now_);
  now_ += absl::Seconds(3);
  metrics_.Observe(core_, now_);
  EXPECT_THAT(Rendered(), age(3));
}

TEST_F(JobMetricsTest, OfAJobThatIsOverNothingIsLeft) {
  ASSERT_NO_FATAL_FAILURE(Run());
  Report(2, 10, 0.5);
  metrics_.Observe(core_, now_);
  EXPECT_THAT(Rendered(), HasSubstr("j-0001"));
  Cancel(job_);
  metrics_.Observe(core_, now_);
  EXPECT_THAT(Rendered(), Not(HasSubstr("j-0001")));
}

}  // namespace
}  // namespace syncline::scheduler
