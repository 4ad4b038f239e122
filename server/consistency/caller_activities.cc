#include "server/consistency/caller_activities.h"

#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"

namespace syncline::ps {

bool CallerActivities::OnReport(uint32_t rank, Activity activity,
                                const PushLedger* worker) {
  Activity& last = newest_[rank];
  const bool says_more =
      std::tie(activity.clock, activity.done) > std::tie(last.clock, last.done);
  const bool is_over = worker != nullptr && activity.clock < worker->pushed();
  if (!says_more || is_over) return false;
  last = std::move(activity);
  return true;
}

std::string CallerActivities::Text(uint32_t rank,
                                   const PushLedger* worker) const {
  const Activity& activity = newest_[rank];
  if (activity.clock < 0) return "";
  if (worker != nullptr &&
      (activity.clock < worker->pushed() || activity.clock > worker->closed() ||
       worker->started())) {
    return "";
  }
  return absl::StrCat(activity.what, ", ", activity.done, " of ",
                      activity.total);
}

}  // namespace syncline::ps
