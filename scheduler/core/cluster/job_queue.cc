#include "scheduler/core/cluster/job_queue.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
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

namespace {

// "3 workers (1 with a GPU), 2 ps".
std::string MembersText(const Capacity& members, bool tells_gpus) {
  return absl::StrCat(
      CountText(members.workers, "worker"),
      tells_gpus ? absl::StrCat(" (", members.gpu_workers, " with a GPU)") : "",
      ", ", CountText(members.ps, "ps"));
}

// The field of the spec that a user can lower so that the job fits.
absl::string_view ShortField(const Capacity& need, const Capacity& total) {
  if (total.workers < need.workers) return "resources.workers";
  return total.ps < need.ps ? "resources.ps" : "resources.workers";
}

}  // namespace

std::string WaitingText(const Capacity& need, const Capacity& free,
                        const Capacity& total) {
  const bool wants_gpus = need.gpu_workers > 0;
  std::string text = absl::StrCat("needs ", CountText(need.workers, "worker"),
                                  wants_gpus ? " with a GPU" : "", " and ",
                                  CountText(need.ps, "ps"),
                                  "; free: ", MembersText(free, wants_gpus));
  if (total.Covers(need)) return text;
  const bool lacks_gpus_alone =
      total.workers >= need.workers && total.ps >= need.ps;
  absl::StrAppend(&text, "; more than this cluster has (",
                  MembersText(total, wants_gpus), "): start more daemons",
                  lacks_gpus_alone ? " on machines with a GPU" : "",
                  ", or submit with smaller ", ShortField(need, total),
                  lacks_gpus_alone ? " or without resources.device: CUDA" : "",
                  "; jobs behind it need not wait for that");
  return text;
}

}  // namespace syncline::scheduler
