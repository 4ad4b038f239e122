#include "scheduler/service/metrics.h"

#include "absl/strings/ascii.h"
#include "scheduler/core/cluster/cluster_core.h"
#include "scheduler/core/describe.h"

namespace syncline::scheduler {

SchedulerMetrics::SchedulerMetrics(MetricsRegistry* registry) {
  if (registry == nullptr) return;
  for (const TaskType type : {CHIEF, WORKER, PS, EVALUATOR}) {
    members_[type] = &registry->AddGauge(
        "syncline_scheduler_members", "Live members by task type.",
        {{"task", std::string(TaskTypeName(type))}});
  }
  engaged_ = &registry->AddGauge("syncline_scheduler_members_engaged",
                                 "Members that work for a job.");
  queued_ = &registry->AddGauge("syncline_scheduler_jobs_queued",
                                "Jobs that wait for free members.");
  unreadable_ = &registry->AddGauge(
      "syncline_scheduler_records_unreadable",
      "Job records on disk that could not be read at the start.");
  accepted_ = &registry->AddCounter("syncline_scheduler_submits_total",
                                    "Submitted jobs by outcome.",
                                    {{"outcome", "accepted"}});
  refused_ = &registry->AddCounter("syncline_scheduler_submits_total",
                                   "Submitted jobs by outcome.",
                                   {{"outcome", "refused"}});
  sessions_ended_ = &registry->AddCounter(
      "syncline_scheduler_sessions_ended_total",
      "Daemons that left, were lost, or lost their lease.");
  store_errors_ =
      &registry->AddCounter("syncline_scheduler_state_write_failures_total",
                            "Job records that could not be written at once.");
  for (const JobState state :
       {PREPARING, RUNNING, SUCCEEDED, FAILED, CANCELLED}) {
    transitions_[state] = &registry->AddCounter(
        "syncline_scheduler_job_transitions_total",
        "Jobs that reached a state.",
        {{"state", absl::AsciiStrToLower(JobState_Name(state))}});
  }
}

void SchedulerMetrics::Observe(const ClusterCore& core) {
  if (members_.empty()) return;
  std::map<TaskType, int> count;
  for (const Membership::Entry* entry : core.membership().All()) {
    ++count[entry->member.task().type()];
  }
  for (const auto& [type, gauge] : members_) gauge->Set(count[type]);
  engaged_->Set(static_cast<double>(core.engaged_count()));
  queued_->Set(static_cast<double>(core.queue_length()));
}

void SchedulerMetrics::CountSubmit(bool accepted) {
  Counter* counter = accepted ? accepted_ : refused_;
  if (counter != nullptr) counter->Add();
}

void SchedulerMetrics::CountTransition(JobState state) {
  const auto it = transitions_.find(state);
  if (it != transitions_.end()) it->second->Add();
}

void SchedulerMetrics::CountLost(double amount) {
  if (sessions_ended_ != nullptr) sessions_ended_->Add(amount);
}

void SchedulerMetrics::SetUnreadable(size_t records) {
  if (unreadable_ != nullptr) unreadable_->Set(static_cast<double>(records));
}

void SchedulerMetrics::CountStoreError() {
  if (store_errors_ != nullptr) store_errors_->Add();
}

}  // namespace syncline::scheduler
