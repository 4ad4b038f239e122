#include "scheduler/core/job/regime_history.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/utf8.h"
#include "common/job/auto_regime_rules.h"
#include "common/job/regime_rules.h"
#include "common/regime/job_regimes.h"
#include "scheduler/core/describe.h"
#include "scheduler/core/job/regime_policy.h"

namespace syncline::scheduler {
namespace {

// Of a reason or an error; more than this is not read.
constexpr size_t kTextBytesMax = 1 << 10;
// The end of the reason of an attempt's entry.
constexpr char kLaterAreLost[] = ": later changes are lost";

bool SameTime(const RegimeTransition& a, const RegimeTransition& b) {
  return a.time().seconds() == b.time().seconds() &&
         a.time().nanos() == b.time().nanos();
}

// Room for one more: of failed changes, which nobody needs to go on, the oldest
// goes first; else the oldest but the first.
void MakeRoom(JobStatus* job) {
  auto* const all = job->mutable_regimes();
  if (all->size() < kRegimeChangesMax) return;
  const auto failed = std::find_if(
      all->begin(), all->end(),
      [](const RegimeTransition& t) { return !t.error().empty(); });
  all->erase(failed != all->end() ? failed : all->begin() + 1);
}

// Fields that may be left out are there; none: it cannot be read.
std::optional<std::string> Plain(const Regime& regime) {
  const auto read = ReadRegime("regime", regime);
  if (!read.ok()) return std::nullopt;
  return ToProto(*read).SerializeAsString();
}

// The prefix by which RegimePolicy knows that a rule was applied, if one of the
// job's own rules leads from `before` to `regime`; else empty.
std::string RuleThatLedTo(const Regime& regime, const Regime& before,
                          const JobStatus& job) {
  for (int i = 0; i < job.spec().regimes_size(); ++i) {
    auto next =
        ChangedRegime(job.spec(), static_cast<uint32_t>(job.workers_size()),
                      before, job.spec().regimes(i).then());
    if (!next.ok()) continue;
    next->set_first_clock(regime.first_clock());
    if (Plain(*next) == Plain(regime)) {
      return RulePrefix(static_cast<size_t>(i));
    }
  }
  return "";
}

// The prefix of what the job has made by itself, if it tries regimes and may
// have come to this one so; else empty.
std::string PrefixOfTrials(const Regime& regime, const JobStatus& job) {
  if (!job.spec().has_auto_regime()) return "";
  const auto tried =
      AutoRegimesOf(job.spec(), static_cast<uint32_t>(job.workers_size()));
  const bool is_tried =
      tried.ok() && absl::c_any_of(*tried, [&](const Regime& known) {
        return TrainTheSame(known, regime);
      });
  return is_tried ? kAutoReason : "";
}

}  // namespace

std::vector<Regime> RegimesInForce(const JobStatus& job) {
  std::vector<Regime> regimes = {RegimeOf(job.spec())};
  for (const RegimeTransition& transition : job.regimes()) {
    if (!transition.error().empty()) continue;
    const int64_t first = transition.regime().first_clock();
    while (!regimes.empty() && regimes.back().first_clock() >= first) {
      regimes.pop_back();
    }
    regimes.push_back(transition.regime());
  }
  return regimes;
}

void BeginRegimes(int64_t start_clock, absl::Time now, JobStatus* job) {
  RegimeTransition entry;
  *entry.mutable_time() = ToTimestamp(now);
  if (job->regimes().empty()) {
    *entry.mutable_regime() = RegimeOf(job->spec());
    entry.set_reason(kAsSubmitted);
    *job->add_regimes() = std::move(entry);
    return;
  }
  const std::vector<Regime> regimes = RegimesInForce(*job);
  if (regimes.back().first_clock() <= start_clock) return;
  const auto next = std::find_if(
      regimes.begin(), regimes.end(),
      [&](const Regime& r) { return r.first_clock() > start_clock; });
  *entry.mutable_regime() = *(next - 1);
  entry.set_reason(absl::StrCat("attempt ", job->attempt(),
                                " goes on from clock ", start_clock,
                                kLaterAreLost));
  MakeRoom(job);
  *job->add_regimes() = std::move(entry);
}

bool IsKnownChange(const RegimeTransition& transition, const JobStatus& job) {
  const std::string reason = Utf8Shortened(transition.reason(), kTextBytesMax);
  return absl::c_any_of(job.regimes(), [&](const RegimeTransition& known) {
    return SameTime(known, transition) && known.reason() == reason;
  });
}

bool TakeRegime(const RegimeTransition& transition, absl::Time now,
                JobStatus* job) {
  RegimeTransition entry = transition;
  entry.set_reason(Utf8Shortened(entry.reason(), kTextBytesMax));
  entry.set_error(Utf8Shortened(entry.error(), kTextBytesMax));
  if (!entry.has_time()) *entry.mutable_time() = ToTimestamp(now);
  if (IsKnownChange(entry, *job)) return false;
  MakeRoom(job);
  *job->add_regimes() = std::move(entry);
  return true;
}

bool TakeRegimesOf(const FoundCheckpoint& found, absl::Time now,
                   JobStatus* job) {
  const int64_t clock = found.checkpoint().clock();
  std::vector<Regime> theirs;
  for (const Regime& regime : found.regimes()) {
    if (!Plain(regime).has_value() ||
        (!theirs.empty() &&
         regime.first_clock() <= theirs.back().first_clock())) {
      return false;
    }
    if (regime.first_clock() <= clock) theirs.push_back(regime);
  }
  std::vector<Regime> ours = RegimesInForce(*job);
  while (!ours.empty() && ours.back().first_clock() > clock) ours.pop_back();
  // A change at the cut may have come behind the manifest.
  if (!ours.empty() && ours.back().first_clock() == clock && !theirs.empty() &&
      theirs.back().first_clock() < clock) {
    ours.pop_back();
  }
  size_t same = 0;
  while (same < std::min(ours.size(), theirs.size()) &&
         Plain(ours[same]) == Plain(theirs[same])) {
    ++same;
  }
  if (theirs.empty() || (same == ours.size() && same == theirs.size())) {
    return true;
  }
  for (size_t i = std::min(same, theirs.size() - 1); i < theirs.size(); ++i) {
    RegimeTransition entry;
    *entry.mutable_regime() = theirs[i];
    *entry.mutable_time() = ToTimestamp(now);
    // Else the next attempt would apply the rule again, at another clock, or
    // would try nothing any more.
    entry.set_reason(absl::StrCat(
        PrefixOfTrials(theirs[i], *job),
        i == 0 ? "" : RuleThatLedTo(theirs[i], theirs[i - 1], *job),
        "as the checkpoint at clock ", clock, " says"));
    MakeRoom(job);
    *job->add_regimes() = std::move(entry);
  }
  return true;
}

bool HasLostChanges(const JobStatus& job) {
  return !job.regimes().empty() &&
         absl::EndsWith(job.regimes().rbegin()->reason(), kLaterAreLost);
}

bool WasChangedByOthers(const JobStatus& job) {
  return absl::c_any_of(job.regimes(), [](const RegimeTransition& entry) {
    return entry.error().empty() && entry.reason() != kAsSubmitted &&
           !absl::StartsWith(entry.reason(), kAutoReason) &&
           !absl::EndsWith(entry.reason(), kLaterAreLost);
  });
}

std::string TrialInForce(const JobStatus& job) {
  for (int i = job.regimes_size() - 1; i >= 0; --i) {
    const RegimeTransition& entry = job.regimes(i);
    if (!entry.error().empty() || IsStay(job.regimes(), i)) continue;
    const bool is_trial = absl::StartsWith(
        entry.reason(), absl::StrCat(kAutoReason, kTrialBegin));
    return is_trial ? entry.reason() : "";
  }
  return "";
}

}  // namespace syncline::scheduler
