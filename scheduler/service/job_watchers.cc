#include "scheduler/service/job_watchers.h"

#include <utility>
#include <vector>

#include "scheduler/core/describe.h"

namespace syncline::scheduler {
namespace {

// A watcher without a status for longer than this may report a silence.
constexpr absl::Duration kBeatPeriod = absl::Seconds(2);

}  // namespace

void JobWatchers::Add(const std::string& job_id,
                      std::shared_ptr<JobWatcher> watcher) {
  watchers_.emplace(job_id, std::move(watcher));
}

void JobWatchers::Remove(const std::string& job_id, const JobWatcher* watcher) {
  const auto [begin, end] = watchers_.equal_range(job_id);
  for (auto it = begin; it != end; ++it) {
    if (it->second.get() != watcher) continue;
    watchers_.erase(it);
    return;
  }
}

std::set<std::string> JobWatchers::TakeChanged(absl::Time now) {
  if (now >= beat_at_) {
    beat_at_ = now + kBeatPeriod;
    for (const auto& [job_id, watcher] : watchers_) changed_.insert(job_id);
  }
  return std::exchange(changed_, {});
}

void JobWatchers::Tell(const std::shared_ptr<const JobStatus>& status) {
  changed_.erase(status->job_id());
  std::vector<std::shared_ptr<JobWatcher>> watchers;
  const auto [begin, end] = watchers_.equal_range(status->job_id());
  for (auto it = begin; it != end; ++it) watchers.push_back(it->second);
  if (IsFinal(status->state())) watchers_.erase(begin, end);
  for (const auto& watcher : watchers) watcher->OnStatus(status);
}

void JobWatchers::Drain() {
  for (const auto& [job_id, watcher] : std::exchange(watchers_, {})) {
    watcher->OnDrain();
  }
}

}  // namespace syncline::scheduler
