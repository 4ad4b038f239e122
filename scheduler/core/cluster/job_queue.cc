#include "scheduler/core/cluster/job_queue.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "scheduler/core/describe.h"

namespace syncline::scheduler {

void JobQueue::Return(const std::string& job_id) {
  if (std::find(ids_.begin(), ids_.end(), job_id) != ids_.end()) return;
  const auto later =
      std::find_if(ids_.begin(), ids_.end(), [&](const std::string& other) {
        return JobNumber(other) > JobNumber(job_id);
      });
  ids_.insert(later, job_id);
}

bool JobQueue::Remove(const std::string& job_id) {
  const auto it = std::find(ids_.begin(), ids_.end(), job_id);
  if (it == ids_.end()) return false;
  ids_.erase(it);
  return true;
}

std::string WaitingText(const Capacity& need, const Capacity& free,
                        const Capacity& total) {
  std::string text = absl::StrCat("needs ", CountText(need.workers, "worker"),
                                  " and ", CountText(need.ps, "ps"),
                                  "; free: ", CountText(free.workers, "worker"),
                                  ", ", CountText(free.ps, "ps"));
  if (!total.Covers(need)) {
    absl::StrAppend(
        &text, "; more than this cluster has (",
        CountText(total.workers, "worker"), ", ", CountText(total.ps, "ps"),
        "): start more daemons, or submit with smaller ",
        total.workers < need.workers ? "resources.workers" : "resources.ps",
        "; jobs behind it need not wait for that");
  }
  return text;
}

}  // namespace syncline::scheduler
