#include "scheduler/core/job/progress_watchdog.h"

#include <algorithm>
#include <tuple>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/utf8.h"
#include "scheduler/core/describe.h"

namespace syncline::scheduler {
namespace {

constexpr size_t kActivityBytesMax = 1024;

bool IsEvaluation(absl::string_view activity) {
  return absl::StartsWith(activity, "evaluating");
}

bool IsLocalStep(absl::string_view activity) {
  return absl::StartsWith(activity, "local step ");
}

}  // namespace

bool ProgressWatchdog::IsFinishing(const Watched& watched) {
  return watched.evaluated_all ||
         (watched.clocks > 0 && watched.clock >= watched.clocks);
}

bool ProgressWatchdog::Works(const Watched& watched) {
  return watched.clocks > 0 || watched.evaluated_all ||
         !watched.activity.empty();
}

absl::Time ProgressWatchdog::MovedAt(const Watched& watched) const {
  if (IsFinishing(watched)) return std::max(watched.moved, anyone_moved_);
  // Workers that have ended their round wait for those that have not.
  const absl::Time moved = std::max(watched.moved, local_step_moved_);
  return holds_workers_ ? std::max(moved, evaluation_moved_) : moved;
}

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
    watched.moved = anyone_moved_ = now;
  }
  if (report.has_evaluation()) {
    if (report.evaluation().final()) {
      watched.evaluated_all = true;
      watched.clock = std::max(watched.clock, report.evaluation().clock());
    }
    watched.moved = evaluation_moved_ = anyone_moved_ = now;
  }
  if (!report.has_activity()) return;
  const bool counts = IsFinishing(watched) || IsEvaluation(report.activity()) ||
                      IsLocalStep(report.activity());
  const std::string activity(
      counts ? Utf8Prefix(report.activity(), kActivityBytesMax) : "");
  if (activity == watched.activity) return;
  if (IsEvaluation(activity) || IsEvaluation(watched.activity)) {
    evaluation_moved_ = now;
  }
  if (IsLocalStep(activity)) local_step_moved_ = now;
  watched.activity = activity;
  watched.moved = anyone_moved_ = now;
}

void ProgressWatchdog::End(uint64_t incarnation) {
  members_.erase(incarnation);
}

absl::Time ProgressWatchdog::moved_within_clock() const {
  const bool trains =
      std::any_of(members_.begin(), members_.end(), [](const auto& member) {
        return member.second.clocks > 0 && !IsFinishing(member.second);
      });
  return holds_workers_ || !trains
             ? std::max(evaluation_moved_, local_step_moved_)
             : local_step_moved_;
}

std::optional<std::string> ProgressWatchdog::Check(absl::Time now) const {
  const Watched* last = nullptr;
  // An evaluation that hangs is to blame before the workers that it holds.
  const auto order = [](const Watched& watched) {
    return std::tuple(!IsEvaluation(watched.activity), IsFinishing(watched),
                      watched.clock, watched.activity.empty());
  };
  for (const auto& [incarnation, watched] : members_) {
    if (!Works(watched) || now - MovedAt(watched) <= limit_) continue;
    if (last == nullptr || order(watched) < order(*last)) last = &watched;
  }
  if (last == nullptr) return std::nullopt;
  return Text(*last, now);
}

std::string ProgressWatchdog::Text(const Watched& watched,
                                   absl::Time now) const {
  std::string standing = absl::StrCat("it is at clock ", watched.clock);
  if (IsFinishing(watched)) {
    standing = absl::StrCat(
        "it has ", watched.clocks > 0 ? "closed" : "evaluated", " clock ",
        watched.clock, ", its last one, but is not done");
  }
  if (!watched.activity.empty()) {
    absl::StrAppend(&standing, "; it said last: ", watched.activity);
  }
  return absl::StrCat(MemberText(watched.member), " has not come forward for ",
                      SecondsText(now - MovedAt(watched)),
                      ", though it answers; ", standing, "; the limit is ",
                      SecondsText(limit_),
                      ", ten times limits.step_timeout_seconds");
}

}  // namespace syncline::scheduler
