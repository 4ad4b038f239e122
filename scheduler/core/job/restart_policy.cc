#include "scheduler/core/job/restart_policy.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/exit_codes.h"
#include "common/job/stop_reasons.h"
#include "scheduler/core/describe.h"
#include "scheduler/core/repeated_fault.h"

namespace syncline::scheduler {
namespace {

constexpr absl::Duration kBackoffMax = absl::Minutes(5);

constexpr absl::string_view kTheCheckpoint = "warning: the checkpoint in ";
constexpr absl::string_view kIsDamaged = " cannot be read: ";

bool IsDamageText(absl::string_view reason) {
  return absl::StartsWith(reason, kTheCheckpoint) &&
         absl::StrContains(reason, kIsDamaged);
}

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
// That a checkpoint is damaged is no failure of the job.
bool IsRestart(const JobStatus& job, int transition) {
  const absl::string_view reason = job.transitions(transition).reason();
  return transition > 0 && job.transitions(transition).state() == QUEUED &&
         !absl::StartsWith(reason, kPlannedMove) && !IsDamageText(reason);
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

// The number that follows `words` in `text`; -1: none does.
int64_t NumberBehind(absl::string_view text, absl::string_view words) {
  const size_t at = text.rfind(words);
  if (at == absl::string_view::npos) return -1;
  text.remove_prefix(at + words.size());
  int64_t number = -1;
  const bool is_number = absl::SimpleAtoi(
      text.substr(0, text.find_first_not_of("0123456789")), &number);
  return is_number ? number : -1;
}

// The attempt that `last` has begun was lost where it began: at the clock that
// the one before had saved.
bool MadeNoStep(absl::string_view reason, const JobTransition& last) {
  const int64_t start =
      NumberBehind(last.reason(), "goes on from the checkpoint at clock ");
  return start >= 0 && NumberBehind(reason, "last clock ") == start;
}

// Restarts for the same `fault`, up to now, without another one between.
int RestartsFor(const std::string& fault, const JobStatus& job) {
  int restarts = 0;
  for (int i = job.transitions_size() - 1; i > 0; --i) {
    if (!IsRestart(job, i)) continue;
    if (FaultIn(job.transitions(i).reason()) != fault) break;
    ++restarts;
  }
  return restarts;
}

}  // namespace

std::string DamageText(absl::string_view path, absl::string_view problems) {
  return absl::StrCat(kTheCheckpoint, path, kIsDamaged, problems);
}

RestartDecision DecideRestart(const JobStatus& job, absl::string_view reason,
                              int exit_code, absl::Time now) {
  if (!job.spec().has_restart() || exit_code != kExitRetryable) return {};
  const RestartSpec& spec = job.spec().restart();
  const JobTransition* const last = LastRestart(job);
  const std::string fault = FaultIn(reason);
  // One loss says little of an attempt that has made no step.
  const int known = last != nullptr && MadeNoStep(reason, *last) ? 2 : 1;
  if (!fault.empty() && RestartsFor(fault, job) >= known) {
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
