#include "common/job/auto_regime_rules.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/status_macros.h"
#include "common/job/regime_rules.h"

namespace syncline {
namespace {

// Ranges and defaults are those of proto/job_spec.proto.
constexpr double kTrialShare = 0.02;
constexpr double kTrialShareMax = 0.5;
constexpr double kGain = 1.1;
constexpr double kGainMax = 100;
constexpr uint64_t kWindowMax = 1'000'000'000;
constexpr int64_t kDefaultWindowMax = 1000;
constexpr uint32_t kDefaultBound = 4;

// A job that can afford windows of this many clocks has more rounds rather than
// longer windows: what is best early is not what is best late.
constexpr int64_t kGoodWindow = 50;
constexpr int kRoundsMax = 4;
// A trial has a window of the regime before it, one after it, and some clocks
// of the job for what it has found.
constexpr int64_t kWindowsOfATrial = 4;

double TrialShareOf(const AutoRegimeSpec& spec) {
  return spec.trial_share() == 0 ? kTrialShare : spec.trial_share();
}

ConsistencySpec::Mode ModeOf(const Regime& regime) {
  const ConsistencySpec::Mode mode = regime.consistency().mode();
  return mode == ConsistencySpec::MODE_UNSPECIFIED ? ConsistencySpec::SYNC
                                                   : mode;
}

std::vector<RegimeChange> DefaultCandidates() {
  std::vector<RegimeChange> all(3);
  all[0].set_mode(ConsistencySpec::SYNC);
  all[1].set_mode(ConsistencySpec::BOUNDED_STALENESS);
  all[1].set_staleness_bound(kDefaultBound);
  all[2].set_mode(ConsistencySpec::ASYNC);
  return all;
}

absl::Status Refuse(absl::string_view path, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", why));
}

// The regimes that a job begins in, and those of `candidates` that differ from
// it. An error is named by the index of the candidate.
absl::StatusOr<std::vector<Regime>> ExplicitRegimes(const JobSpec& spec,
                                                    uint32_t workers) {
  std::vector<Regime> regimes = {FirstRegimeOf(spec)};
  const auto& candidates = spec.auto_regime().candidates();
  if (candidates.size() > kAutoCandidatesMax) {
    return Refuse("auto_regime.candidates",
                  absl::StrCat(candidates.size(), " of them, at most ",
                               kAutoCandidatesMax));
  }
  for (int i = 0; i < candidates.size(); ++i) {
    const std::string path = Indexed("auto_regime.candidates", i);
    if (candidates[i].ByteSizeLong() == 0) {
      return Refuse(path, "is required: what differs from how the job begins");
    }
    const auto next = ChangedRegime(spec, workers, regimes[0], candidates[i]);
    if (!next.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ".", next.status().message()));
    }
    const auto same = absl::c_find_if(regimes, [&](const Regime& known) {
      return TrainTheSame(known, *next);
    });
    if (same != regimes.end()) {
      return Refuse(path,
                    absl::StrCat("repeats another one: ", RegimeText(*next)));
    }
    regimes.push_back(*next);
  }
  return regimes;
}

absl::StatusOr<std::vector<Regime>> DefaultRegimes(const JobSpec& spec,
                                                   uint32_t workers) {
  if (workers < 2) {
    return Refuse("auto_regime",
                  "there is nothing to choose from: with one worker all modes "
                  "train the same; name candidates, or leave it out");
  }
  std::vector<Regime> regimes = {FirstRegimeOf(spec)};
  const ConsistencySpec::Mode begins_in = ModeOf(regimes[0]);
  absl::Status refused;
  for (const RegimeChange& candidate : DefaultCandidates()) {
    auto next = ChangedRegime(spec, workers, regimes[0], candidate);
    // The mode that the job begins in is none, and says least of the reasons.
    if (next.ok()) {
      regimes.push_back(*std::move(next));
    } else if (candidate.mode() != begins_in) {
      refused = next.status();
    }
  }
  if (regimes.size() > 1) return regimes;
  return Refuse("auto_regime", absl::StrCat("there is nothing to choose from: ",
                                            refused.message()));
}

}  // namespace

absl::StatusOr<std::vector<Regime>> AutoRegimesOf(const JobSpec& spec,
                                                  uint32_t workers) {
  return spec.auto_regime().candidates().empty()
             ? DefaultRegimes(spec, workers)
             : ExplicitRegimes(spec, workers);
}

RegimeChange ChangeBetween(const Regime& from, const Regime& to) {
  RegimeChange change;
  // A strategy changes by itself, in SYNC alone.
  if (StrategyOf(from) != StrategyOf(to)) {
    change.set_strategy(StrategyOf(to));
    if (to.sharding_stage() > 0) change.set_sharding_stage(to.sharding_stage());
    return change;
  }
  change.set_mode(ModeOf(to));
  if (ModeOf(to) == ConsistencySpec::BOUNDED_STALENESS) {
    change.set_staleness_bound(to.consistency().staleness_bound());
  }
  change.set_learning_rate_factor(
      to.learning_rate_factor() == 0 ? 1 : to.learning_rate_factor());
  return change;
}

absl::StatusOr<TrialPlan> PlanTrials(const AutoRegimeSpec& spec, int candidates,
                                     int64_t clocks_total) {
  const double share = TrialShareOf(spec);
  TrialPlan plan;
  // A share of 0.02 of 500 clocks is 10 of them, whatever 0.02 is in binary.
  plan.budget = static_cast<int64_t>(
      std::floor(share * static_cast<double>(clocks_total) + 1e-6));
  const std::string of_job =
      absl::StrCat(share, " of the job's ", clocks_total, " clocks is ",
                   plan.budget, " of them");
  const bool is_given = spec.window_clocks() > 0;
  const int64_t least =
      is_given ? static_cast<int64_t>(spec.window_clocks()) : kTrialClocksMin;
  if (plan.budget < least) {
    return Refuse("auto_regime.trial_share",
                  absl::StrCat(of_job, ", fewer than one window of ", least,
                               "; raise it, train for longer, or leave "
                               "auto_regime out"));
  }
  const int64_t longest = clocks_total / kWindowsOfATrial;
  if (longest < least) {
    return Refuse("auto_regime",
                  absl::StrCat("the job's ", clocks_total,
                               " clocks are too few to try anything: a trial "
                               "takes windows before, during and after it, of ",
                               least, " clocks each"));
  }
  for (plan.rounds = kRoundsMax;; plan.rounds /= 2) {
    const int64_t each = plan.budget / (int64_t{candidates} * plan.rounds);
    plan.window = is_given ? least
                           : std::clamp(each, kTrialClocksMin,
                                        std::min(longest, kDefaultWindowMax));
    if (plan.rounds == 1 || each >= (is_given ? least : kGoodWindow)) break;
  }
  return plan;
}

absl::StatusOr<TrialPlan> PlanTrials(const JobSpec& spec, uint32_t workers,
                                     int64_t clocks_total) {
  SYNCLINE_ASSIGN_OR_RETURN(const std::vector<Regime> regimes,
                            AutoRegimesOf(spec, workers));
  return PlanTrials(spec.auto_regime(), static_cast<int>(regimes.size()) - 1,
                    clocks_total);
}

int64_t TrialClocksIn(absl::Span<const Regime> regimes, int64_t window) {
  int64_t spent = 0;
  for (size_t i = 1; i < regimes.size(); ++i) {
    const int64_t clocks =
        regimes[i].first_clock() - regimes[i - 1].first_clock();
    if (clocks <= window) spent += clocks;
  }
  return spent;
}

bool IsStay(const google::protobuf::RepeatedPtrField<RegimeTransition>& history,
            int entry) {
  const RegimeTransition& told = history[entry];
  if (!told.error().empty() || !absl::StartsWith(told.reason(), kAutoReason)) {
    return false;
  }
  for (int i = entry - 1; i >= 0; --i) {
    if (!history[i].error().empty()) continue;
    return history[i].regime().first_clock() == told.regime().first_clock();
  }
  return false;
}

double TrialGainOf(const AutoRegimeSpec& spec) {
  return spec.gain() == 0 ? kGain : spec.gain();
}

bool TriesSync(const JobSpec& spec) {
  if (!spec.has_auto_regime()) return false;
  const auto regimes =
      AutoRegimesOf(spec, std::max(1u, spec.resources().workers()));
  return regimes.ok() && absl::c_any_of(*regimes, [](const Regime& regime) {
           return ModeOf(regime) == ConsistencySpec::SYNC;
         });
}

void CheckAutoRegime(const JobSpec& spec, Problems* problems) {
  if (!spec.has_auto_regime()) return;
  const AutoRegimeSpec& tried = spec.auto_regime();
  const size_t before = problems->size();
  if (!spec.regimes().empty()) {
    problems->Add("auto_regime",
                  "not together with `regimes`: a job's regime is for one of "
                  "them to choose");
  }
  if (const uint64_t window = tried.window_clocks();
      window > 0 && (window < static_cast<uint64_t>(kTrialClocksMin) ||
                     window > kWindowMax)) {
    problems->Add("auto_regime.window_clocks", window, " is outside ",
                  kTrialClocksMin, "..", kWindowMax);
  }
  if (const double share = tried.trial_share();
      !(share >= 0 && share <= kTrialShareMax)) {
    problems->Add("auto_regime.trial_share", share, " is outside (0, ",
                  kTrialShareMax, "]");
  }
  if (const double gain = tried.gain();
      gain != 0 && !(gain >= 1 && gain <= kGainMax)) {
    problems->Add("auto_regime.gain", gain, " is outside [1, ", kGainMax, "]");
  }
  // CheckLocal refuses it.
  const bool is_local = spec.consistency().mode() == ConsistencySpec::LOCAL;
  if (is_local || problems->size() > before) return;
  const uint32_t workers = std::max(1u, spec.resources().workers());
  const auto add = [problems](const absl::Status& why) {
    // "auto_regime.candidates[1].mode: why"
    const absl::string_view text = why.message();
    const size_t colon = text.find(": ");
    problems->Add(text.substr(0, colon), text.substr(colon + 2));
  };
  const auto regimes = AutoRegimesOf(spec, workers);
  if (!regimes.ok()) return add(regimes.status());
  // A job may have fewer clocks than max_clocks, not more; the chief knows.
  if (spec.training().max_clocks() == 0) return;
  const auto clocks = static_cast<int64_t>(
      std::min<uint64_t>(spec.training().max_clocks(), uint64_t{1} << 52));
  const auto plan =
      PlanTrials(tried, static_cast<int>(regimes->size()) - 1, clocks);
  if (!plan.ok()) add(plan.status());
}

}  // namespace syncline
