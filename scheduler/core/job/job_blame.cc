#include "scheduler/core/job/job_blame.h"

#include <algorithm>
#include <utility>

#include "google/protobuf/util/message_differencer.h"
#include "scheduler/core/job/job_progress.h"

namespace syncline::scheduler {

using google::protobuf::util::MessageDifferencer;

bool TakeBlame(const PsReport& report, const WorkerGroups& groups,
               JobProgress* progress) {
  if (report.blame().empty()) return false;
  auto blame = report.blame();
  for (Blame& of : blame) {
    if (of.rank() < groups.count()) of.set_rank(groups.LeaderOf(of.rank()));
  }
  bool same = progress->blame_size() == blame.size();
  for (int i = 0; same && i < blame.size(); ++i) {
    same = MessageDifferencer::Equals(progress->blame(i), blame.Get(i));
  }
  if (same) return false;
  *progress->mutable_blame() = std::move(blame);
  return true;
}

void FollowTheForemost(int64_t start_clock, bool ends_early,
                       absl::Duration running, JobProgress* progress) {
  int64_t clock = progress->clock();
  int64_t per_epoch = 0;
  for (const WorkerProgress& worker : progress->workers()) {
    clock = std::max(clock, worker.clock());
    per_epoch = std::max(per_epoch, worker.clocks_per_epoch());
  }
  progress->set_clock(clock);
  if (per_epoch > 0) {
    progress->set_epoch(static_cast<uint32_t>(std::min<int64_t>(
        progress->epochs_total(),
        JobProgressTracker::EpochAt(clock, per_epoch, ends_early))));
  }
  if (clock <= start_clock) return;
  progress->set_seconds_left(absl::ToDoubleSeconds(running) /
                             static_cast<double>(clock - start_clock) *
                             static_cast<double>(std::max<int64_t>(
                                 0, progress->clocks_total() - clock)));
}

}  // namespace syncline::scheduler
