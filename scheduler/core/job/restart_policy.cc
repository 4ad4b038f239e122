#include "scheduler/core/job/restart_policy.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/exit_codes.h"
#include "common/job/stop_reasons.h"
#include "scheduler/core/describe.h"
#include "scheduler/core/repeated_fault.h"

namespace syncline::scheduler {
namespace {

constexpr absl::Duration kBackoffMax = absl::Minutes(5);

// The defaults of proto/job_spec.proto, for records that are without.
uint32_t MaxOf(const RestartSpec& spec) {
  return spec.max() > 0 ? spec.max() : 3;
}

absl::Duration WindowOf(const RestartSpec& spec) {
  return absl::Seconds(spec.window_seconds() > 0 ? spec.window_seconds()
                                                 : 3600);
}

absl::Duration BackoffOf(const RestartSpec& spec) {
  return absl::Seconds(spec.has_backoff_seconds() ? spec.backoff_seconds() : 1);
}

// A job goes back to QUEUED with each restart; the first time it was submitted.
bool IsRestart(const JobStatus& job, int transition) {
  return transition > 0 && job.transitions(transition).state() == QUEUED &&
         !absl::StartsWith(job.transitions(transition).reason(), kPlannedMove);
}

uint32_t RestartsSince(const JobStatus& job, absl::Time since) {
  uint32_t restarts = 0;
  for (int i = 0; i < job.transitions_size(); ++i) {
    restarts +=
        IsRestart(job, i) && FromTimestamp(job.transitions(i).time()) > since
            ? 1
            : 0;
  }
  return restarts;
}

// Null: none.
const JobTransition* LastRestart(const JobStatus& job) {
  for (int i = job.transitions_size() - 1; i > 0; --i) {
    if (IsRestart(job, i)) return &job.transitions(i);
  }
  return nullptr;
}

}  // namespace

RestartDecision DecideRestart(const JobStatus& job, absl::string_view reason,
                              int exit_code, absl::Time now) {
  if (!job.spec().has_restart() || exit_code != kExitRetryable) return {};
  const RestartSpec& spec = job.spec().restart();
  const JobTransition* const last = LastRestart(job);
  const std::string fault = FaultIn(reason);
  if (last != nullptr && !fault.empty() && FaultIn(last->reason()) == fault) {
    return {.repeated = true,
            .text = absl::StrCat(
                "\nnot restarted: the attempt before has failed in the same "
                "way at the same clock, so the next one would, too")};
  }
  const absl::Duration window = WindowOf(spec);
  const uint32_t restarts = RestartsSince(job, now - window);
  const std::string limit =
      absl::StrCat(MaxOf(spec), " within ", absl::FormatDuration(window));
  if (restarts >= MaxOf(spec)) {
    return {.text = absl::StrCat("\nnot restarted: restart.max allows ", limit,
                                 ", and there were as many")};
  }
  return {
      .restarts = true,
      .text = absl::StrCat("restart ", restarts + 1, " of at most ", limit)};
}

absl::Duration RestartBackoff(const JobStatus& job) {
  const JobTransition* const last = LastRestart(job);
  if (last == nullptr) return absl::ZeroDuration();
  const RestartSpec& spec = job.spec().restart();
  const uint32_t restarts =
      RestartsSince(job, FromTimestamp(last->time()) - WindowOf(spec));
  absl::Duration backoff = BackoffOf(spec);
  for (uint32_t i = 1; i < restarts && backoff < kBackoffMax; ++i) backoff *= 2;
  // A job may ask for more than the doubling goes up to.
  return std::min(backoff, std::max(kBackoffMax, BackoffOf(spec)));
}

absl::Time RestartTime(const JobStatus& job) {
  const JobTransition* const last = LastRestart(job);
  if (last == nullptr) return absl::InfinitePast();
  return FromTimestamp(last->time()) + RestartBackoff(job);
}

}  // namespace syncline::scheduler
