// The events of jobs: ClusterCore's part that records and lists them.

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "scheduler/core/cluster/cluster_core.h"

namespace syncline::scheduler {

void ClusterCore::NoteEvent(const Job& job, absl::string_view kind,
                            absl::string_view text, absl::Time now) {
  events_[job.id()].Add(kind, text, job.status(), ClockOf(job), now);
  noted_.insert(job.id());
}

int64_t ClusterCore::ClockOf(const Job& job) {
  const int64_t clock = job.min_clock();
  return clock >= 0 ? clock : job.status().progress().clock();
}

void ClusterCore::RecordEvents(absl::Time now, ClusterActions* actions) {
  std::set<std::string> changed = std::exchange(noted_, {});
  for (const ClusterAction& action : *actions) {
    if (const auto* persist = std::get_if<PersistJob>(&action)) {
      changed.insert(persist->job_id);
    } else if (const auto* job = std::get_if<JobChanged>(&action)) {
      changed.insert(job->job_id);
    } else if (const auto* old = std::get_if<DeleteJob>(&action)) {
      if (old->record) events_.erase(old->job_id);
    }
  }
  for (const std::string& job_id : changed) {
    const Job* const job = jobs_.Find(job_id);
    if (job == nullptr) continue;
    JobEventLog& log = events_[job_id];
    log.Observe(job->status(), ClockOf(*job), now);
    AppendEvent append = {.job_id = job_id};
    while (log.TakeNew(&append.event, &append.left_out)) {
      actions->push_back(append);
    }
  }
}

absl::StatusOr<ClusterCore::EventList> ClusterCore::Events(
    const std::string& job_id, uint64_t from) const {
  SYNCLINE_RETURN_IF_ERROR(FindJob(job_id).status());
  const auto log = events_.find(job_id);
  if (log == events_.end()) return EventList();
  return EventList{log->second.From(from), log->second.left_out()};
}

}  // namespace syncline::scheduler
