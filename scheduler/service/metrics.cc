#include "scheduler/service/metrics.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "scheduler/core/describe.h"

namespace syncline::scheduler {
namespace {

using LossCause = ClusterCore::LossCause;

constexpr std::pair<LossCause, const char*> kLossCauses[] = {
    {LossCause::kLeft, "left"},
    {LossCause::kDied, "died"},
    {LossCause::kSilent, "silent"},
    {LossCause::kNotBack, "not_back"},
    {LossCause::kNotReleased, "not_released"},
    {LossCause::kReplaced, "replaced"},
    {LossCause::kRevoked, "revoked"},
};
constexpr JobState kOpenStates[] = {QUEUED, PREPARING, RUNNING};

std::string StateName(JobState state) {
  return absl::AsciiStrToLower(JobState_Name(state));
}

}  // namespace

SchedulerMetrics::SchedulerMetrics(MetricsRegistry* registry) {
  if (registry == nullptr) return;
  for (const TaskType type : {CHIEF, WORKER, PS, EVALUATOR}) {
    members_[type] =
        &registry->AddGauge("syncline_scheduler_members",
                            {{"task", std::string(TaskTypeName(type))}});
  }
  engaged_ = &registry->AddGauge("syncline_scheduler_members_engaged");
  queued_ = &registry->AddGauge("syncline_scheduler_jobs_queued");
  oldest_ = &registry->AddGauge("syncline_scheduler_queue_oldest_seconds");
  for (const JobState state : kOpenStates) {
    jobs_[state] = &registry->AddGauge("syncline_scheduler_jobs",
                                       {{"state", StateName(state)}});
  }
  unreadable_ = &registry->AddGauge("syncline_scheduler_records_unreadable");
  accepted_ = &registry->AddCounter("syncline_scheduler_submits_total",
                                    {{"outcome", "accepted"}});
  refused_ = &registry->AddCounter("syncline_scheduler_submits_total",
                                   {{"outcome", "refused"}});
  sessions_ended_ =
      &registry->AddCounter("syncline_scheduler_sessions_ended_total");
  // All of them from the start: of a counter that begins with 1 Prometheus sees
  // no increase.
  for (const auto& [cause, name] : kLossCauses) {
    losses_[cause] = &registry->AddCounter(
        "syncline_scheduler_members_lost_total", {{"cause", name}});
  }
  loop_delay_ = &registry->AddHistogram("syncline_scheduler_loop_delay_seconds",
                                        {}, MetricsRegistry::DurationBounds());
  store_errors_ =
      &registry->AddCounter("syncline_scheduler_state_write_failures_total");
  for (const JobState state :
       {PREPARING, RUNNING, SUCCEEDED, FAILED, CANCELLED}) {
    transitions_[state] =
        &registry->AddCounter("syncline_scheduler_job_transitions_total",
                              {{"state", StateName(state)}});
  }
}

void SchedulerMetrics::Observe(const ClusterCore& core, absl::Time now) {
  if (members_.empty()) return;
  std::map<TaskType, int> count;
  for (const Membership::Entry* entry : core.membership().All()) {
    ++count[entry->member.task().type()];
  }
  for (const auto& [type, gauge] : members_) gauge->Set(count[type]);
  engaged_->Set(static_cast<double>(core.engaged_count()));
  queued_->Set(static_cast<double>(core.queue_length()));
  std::map<JobState, int> jobs;
  absl::Time oldest = now;
  for (const Job* job : core.Jobs()) {
    const JobState state = job->status().state();
    ++jobs[state];
    if (state == QUEUED) oldest = std::min(oldest, job->since());
  }
  for (const auto& [state, gauge] : jobs_) gauge->Set(jobs[state]);
  oldest_->Set(absl::ToDoubleSeconds(now - oldest));
  MutexLock lock(&mu_);
  job_metrics_.Observe(core, now);
  sessions_ended_->Add(static_cast<double>(
      core.lost_count() - std::exchange(lost_told_, core.lost_count())));
  for (const auto& [cause, losses] : core.losses()) {
    losses_.at(cause)->Add(static_cast<double>(
        losses - std::exchange(losses_told_[cause], losses)));
  }
}

void SchedulerMetrics::Collect(const ClusterCore& core, absl::Time now,
                               MetricSamples* samples) const {
  MutexLock lock(&mu_);
  job_metrics_.Collect(core, now, samples);
}

void SchedulerMetrics::CountSubmit(bool accepted) {
  Counter* counter = accepted ? accepted_ : refused_;
  if (counter != nullptr) counter->Add();
}

void SchedulerMetrics::CountTransition(JobState state) {
  const auto it = transitions_.find(state);
  if (it != transitions_.end()) it->second->Add();
}

void SchedulerMetrics::CountHandled(absl::Duration delay) {
  if (loop_delay_ != nullptr) {
    loop_delay_->Observe(absl::ToDoubleSeconds(delay));
  }
}

void SchedulerMetrics::SetUnreadable(size_t records) {
  if (unreadable_ != nullptr) unreadable_->Set(static_cast<double>(records));
}

void SchedulerMetrics::CountStoreError() {
  if (store_errors_ != nullptr) store_errors_->Add();
}

}  // namespace syncline::scheduler
