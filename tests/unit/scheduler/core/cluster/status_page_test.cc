// Goal: the page shows what there is and is not a way in. Method: pages of made
// up clusters, hostile ones among them.

#include "scheduler/core/cluster/status_page.h"

#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline::scheduler {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

StatusPageData OneJob(JobState state) {
  StatusPageData data;
  data.now = absl::UnixEpoch() + absl::Hours(2);
  JobStatus status;
  status.set_job_id("j-0007");
  status.set_state(state);
  status.mutable_spec()->set_name("mnist");
  JobTransition* transition = status.add_transitions();
  transition->set_state(state);
  transition->mutable_time()->set_seconds(3600);
  data.jobs.push_back({status, {}});
  return data;
}

TEST(StatusPageTest, AnEmptyClusterSaysWhatToDo) {
  const std::string page = RenderStatusPage({});
  EXPECT_THAT(page, AllOf(HasSubstr("synctl submit"), HasSubstr("</html>")));
}

TEST(StatusPageTest, ARunningJobShowsItsProgress) {
  StatusPageData data = OneJob(RUNNING);
  JobProgress* progress = data.jobs[0].status.mutable_progress();
  progress->set_clock(50);
  progress->set_clocks_total(200);
  progress->set_epoch(2);
  progress->set_epochs_total(5);
  progress->set_loss(0.25);
  progress->set_samples_per_second(1234);
  progress->set_seconds_left(61);
  Evaluation* evaluation = data.jobs[0].status.add_evaluations();
  evaluation->set_epoch(1);
  evaluation->set_accuracy(0.975);
  data.jobs[0]
      .status.mutable_evaluator()
      ->mutable_member()
      ->mutable_task()
      ->set_type(EVALUATOR);
  EXPECT_THAT(
      RenderStatusPage(data),
      AllOf(HasSubstr("width:25.0%"), HasSubstr("epoch 2/5"),
            HasSubstr("loss 0.25"), HasSubstr("1234 samples/s"),
            HasSubstr("1m1s left"), HasSubstr("accuracy 0.975 (evaluator 0)"),
            HasSubstr("1h ago")));
}

TEST(StatusPageTest, NumbersThatAreNoneAreNotShown) {
  StatusPageData data = OneJob(RUNNING);
  JobProgress* progress = data.jobs[0].status.mutable_progress();
  progress->set_loss(std::numeric_limits<double>::quiet_NaN());
  progress->set_seconds_left(-1);
  EXPECT_THAT(RenderStatusPage(data), Not(HasSubstr("nan")));
  progress->clear_loss();
  EXPECT_THAT(RenderStatusPage(data), Not(HasSubstr("loss 0")));
  progress->set_loss(0);
  EXPECT_THAT(RenderStatusPage(data), HasSubstr("loss 0<br>"));
}

TEST(StatusPageTest, SaysWhatHadNoEffect) {
  StatusPageData data = OneJob(RUNNING);
  JobStatus* status = &data.jobs[0].status;
  status->mutable_progress()->set_clock(50);
  EXPECT_THAT(RenderStatusPage(data), Not(HasSubstr("skipped")));
  status->mutable_progress()->set_skipped_clocks(12);
  EXPECT_THAT(RenderStatusPage(data),
              HasSubstr("<div>12 of 50 steps were skipped: "));
  status->mutable_progress()->set_skipped_clocks(50);
  status->set_state(SUCCEEDED);
  EXPECT_THAT(RenderStatusPage(data),
              HasSubstr("<b>Warning: all 50 steps were skipped: "));
}

TEST(StatusPageTest, SaysWhomARunningJobWaitsFor) {
  StatusPageData data = OneJob(RUNNING);
  data.jobs[0].status.set_waiting_for("evaluator 0 at h:1");
  EXPECT_THAT(RenderStatusPage(data),
              HasSubstr("waiting for evaluator 0 at h:1"));
}

TEST(StatusPageTest, WhatUsersAndDaemonsWriteIsEscaped) {
  const std::string hostile = "<img src=x onerror='a()'>\"&";
  StatusPageData data = OneJob(FAILED);
  JobStatus& job = data.jobs[0].status;
  job.mutable_spec()->set_name(hostile);
  job.mutable_transitions(0)->set_reason(hostile);
  job.set_waiting_for(hostile);
  ClusterStatus::Entry* entry = data.cluster.add_members();
  entry->mutable_member()->set_address(hostile);
  entry->mutable_member()->set_hostname(hostile);
  entry->set_job_id(hostile);
  data.cluster.set_scheduler_address(hostile);
  const std::string page = RenderStatusPage(data);
  EXPECT_THAT(page, Not(HasSubstr("<img")));
  EXPECT_THAT(page,
              HasSubstr("&lt;img src=x onerror=&#39;a()&#39;&gt;&quot;&amp;"));
  EXPECT_THAT(page, Not(HasSubstr("<script")));
}

TEST(StatusPageTest, TheCurveRunsFromTopLeftToBottomRight) {
  EXPECT_EQ(RenderLossCurve({}), "");
  EXPECT_EQ(RenderLossCurve({{1, 1.0}}), "");
  EXPECT_THAT(RenderLossCurve({{0, 2.0}, {50, 1.5}, {100, 1.0}}),
              HasSubstr("points=\"0.0,0.0 110.0,30.0 220.0,60.0 \""));
  // A flat one divides by nothing.
  EXPECT_THAT(RenderLossCurve({{0, 1.0}, {1, 1.0}}),
              HasSubstr("points=\"0.0,0.0 220.0,0.0 \""));
}

}  // namespace
}  // namespace syncline::scheduler
