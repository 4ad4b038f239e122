// Goal: the scheduler exports its members by task type, its jobs and what it
// counted; without a registry it exports nothing and does no harm. Method: a
// core with members and a queued job, and the rendered text.

#include "scheduler/service/metrics.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/daemon/metrics.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/core/cluster/cluster_core.h"

namespace syncline::scheduler {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

void Record(const ClusterCore& core, SchedulerMetrics* metrics) {
  metrics->Observe(core, absl::UnixEpoch() + absl::Hours(2));
  metrics->CountSubmit(true);
  metrics->CountSubmit(false);
  metrics->CountSubmit(false);
  metrics->CountTransition(RUNNING);
  metrics->CountTransition(QUEUED);  // none is reached by a transition
  metrics->CountHandled(absl::Milliseconds(3));
  metrics->CountStoreError();
  metrics->SetUnreadable(4);
}

class SchedulerMetricsTest : public ::testing::Test {
 protected:
  SchedulerMetricsTest() : core_(Options()) {
    core_.Restore({}, {}, now_, &actions_);
    for (uint32_t index = 0; index < 3; ++index) {
      Register request;
      Member* const member = request.mutable_member();
      member->mutable_task()->set_type(PS);
      member->mutable_task()->set_index(index);
      member->set_address(absl::StrCat("h:", index + 1));
      member->set_incarnation(index + 1);
      member->set_version("0.1.0");
      core_.OnRegister(index + 1, request, now_, &actions_);
    }
    // One is not heard of again.
    const absl::Time later = now_ + Options().lease + absl::Seconds(1);
    for (SessionId session : {1, 2}) {
      DaemonMessage message;
      message.mutable_heartbeat();
      core_.OnMessage(session, message, later, &actions_);
    }
    core_.OnTick(later, &actions_);
    // No worker has registered: the job waits.
    JobSpec spec;
    spec.mutable_resources()->set_workers(1);
    spec.mutable_resources()->set_ps(1);
    const auto job = core_.Prepare(spec, {}, {}, core_.NextJobId(), now_);
    EXPECT_TRUE(job.ok()) << job.status();
    core_.Submit(*job, now_, &actions_);
  }
  static ClusterCore::Options Options() {
    ClusterCore::Options options;
    options.new_secret = [] { return std::string("0123456789abcdef"); };
    options.version = "0.1.0";
    options.queue_max = 4;
    options.keep = absl::Hours(1);
    return options;
  }

  const absl::Time now_ = absl::UnixEpoch() + absl::Hours(1);
  ClusterActions actions_;
  ClusterCore core_;
};

TEST_F(SchedulerMetricsTest, ExportsTheClusterAndWhatWasCounted) {
  MetricsRegistry registry;
  SchedulerMetrics metrics(&registry);
  Record(core_, &metrics);
  const std::string text = registry.Render();
  EXPECT_THAT(
      text,
      AllOf(HasSubstr("syncline_scheduler_members{task=\"ps\"} 2\n"),
            HasSubstr("syncline_scheduler_members{task=\"worker\"} 0\n"),
            HasSubstr("syncline_scheduler_members_engaged 0\n"),
            HasSubstr("syncline_scheduler_jobs_queued 1\n"),
            HasSubstr("syncline_scheduler_records_unreadable 4\n"),
            HasSubstr(
                "syncline_scheduler_submits_total{outcome=\"accepted\"} 1\n"),
            HasSubstr(
                "syncline_scheduler_submits_total{outcome=\"refused\"} 2\n"),
            HasSubstr("syncline_scheduler_sessions_ended_total 1\n")));
  EXPECT_THAT(
      text,
      AllOf(HasSubstr("syncline_scheduler_members_lost_total{cause=\"silent\"} "
                      "1\n"),
            HasSubstr("syncline_scheduler_members_lost_total{cause=\"died\"} "
                      "0\n"),
            HasSubstr("syncline_scheduler_jobs{state=\"queued\"} 1\n"),
            HasSubstr("syncline_scheduler_queue_oldest_seconds 3600\n"),
            HasSubstr("syncline_scheduler_loop_delay_seconds_count 1\n")));
  EXPECT_THAT(
      text,
      AllOf(HasSubstr("syncline_scheduler_state_write_failures_total 1\n"),
            HasSubstr("syncline_scheduler_job_transitions_total{"
                      "state=\"running\"} 1\n"),
            HasSubstr("syncline_scheduler_job_transitions_total{"
                      "state=\"failed\"} 0\n"),
            Not(HasSubstr("job_transitions_total{state=\"queued\""))));
}

TEST_F(SchedulerMetricsTest, WithoutARegistryNothingIsExported) {
  SchedulerMetrics metrics(nullptr);
  Record(core_, &metrics);
}

}  // namespace
}  // namespace syncline::scheduler
