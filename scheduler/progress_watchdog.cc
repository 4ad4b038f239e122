#include "scheduler/progress_watchdog.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/utf8.h"
#include "scheduler/describe.h"

namespace syncline {
namespace {

constexpr size_t kActivityBytesMax = 1024;

}  // namespace

void ProgressWatchdog::Begin(const Member& member, int64_t clocks,
                             absl::Time now) {
  Watched& watched = members_[member.incarnation()];
  watched.member = member;
  watched.clocks = clocks;
  watched.moved = now;
}

void ProgressWatchdog::OnReport(uint64_t incarnation,
                                const WorkerReport& report, absl::Time now) {
  const auto it = members_.find(incarnation);
  if (it == members_.end()) return;
  Watched& watched = it->second;
  if (report.has_progress() && report.progress().clock() > watched.clock) {
    watched.clock = report.progress().clock();
    watched.moved = now;
  }
  if (report.has_evaluation()) watched.moved = evaluation_moved_ = now;
  if (!report.has_activity()) return;
  // Reports about results, or about loading data, have limits of their own.
  const std::string activity(
      absl::StartsWith(report.activity(), "evaluating")
          ? Utf8Prefix(report.activity(), kActivityBytesMax)
          : "");
  if (activity == watched.activity) return;
  watched.activity = activity;
  watched.moved = evaluation_moved_ = now;
}

void ProgressWatchdog::End(uint64_t incarnation) {
  members_.erase(incarnation);
}

std::optional<std::string> ProgressWatchdog::Check(absl::Time now) const {
  const Watched* last = nullptr;
  for (const auto& [incarnation, watched] : members_) {
    const absl::Time moved = std::max(watched.moved, evaluation_moved_);
    if (!Works(watched) || now - moved <= limit_) continue;
    // An evaluation that hangs is to blame before the workers that it holds.
    const bool sooner = last == nullptr ||
                        (!watched.activity.empty() && last->activity.empty()) ||
                        (watched.activity.empty() == last->activity.empty() &&
                         watched.clock < last->clock);
    if (sooner) last = &watched;
  }
  if (last == nullptr) return std::nullopt;
  return absl::StrCat(
      MemberText(last->member), " has not come forward for ",
      SecondsText(now - last->moved), ", though it answers; it is at clock ",
      last->clock,
      last->activity.empty() ? "" : absl::StrCat(", ", last->activity),
      "; the limit is ", SecondsText(limit_),
      ", ten times limits.step_timeout_seconds");
}

}  // namespace syncline
