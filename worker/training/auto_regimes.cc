#include "worker/training/auto_regimes.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "common/job/regime_rules.h"

namespace syncline::worker {
namespace {

// The difference of two slopes counts from so many of its standard errors on:
// of many points, one comparison of equals in a hundred takes one of them.
constexpr double kErrors = 2.5;
// The mean of a candidate's last losses: each new one has this weight.
constexpr double kMeanWeight = 0.2;
constexpr int64_t kLossesMin = 5;  // before that mean says anything
// The loss of a candidate has risen clearly if that mean is above the level
// before by half of it, and by twice the scatter of one step's loss: which is
// six standard deviations of the mean.
constexpr double kRise = 0.5;
constexpr double kScatters = 2;
// A change is in force two clocks after it is asked for, or a few more.
constexpr int64_t kChangeClocks = 2;
constexpr int kReturnsMax = 10;

// "BOUNDED_STALENESS bound 4": without the rate, which follows from the mode.
std::string ShortName(Regime regime) {
  regime.clear_learning_rate_factor();
  return absl::StrReplaceAll(RegimeText(regime), {{",", ""}});
}

// Of so many points more errors are needed than of many: about as the quantiles
// of Student's t grow.
double ErrorsOf(int freedom) {
  return kErrors * (1 + 1.5 / std::max(1, freedom));
}

}  // namespace

AutoRegimes::AutoRegimes(Options options)
    : options_(std::move(options)),
      spent_(options_.spent),
      clock_(options_.first_clock) {
  regimes_.push_back({options_.current, ShortName(options_.current)});
  for (const Regime& candidate : options_.candidates) {
    if (TrainTheSame(candidate, options_.current)) continue;
    regimes_.push_back({candidate, ShortName(candidate)});
  }
  std::vector<std::string> names;
  for (const Known& known : regimes_) names.push_back(known.name);
  for (Known& known : regimes_) {
    if (absl::c_count(names, known.name) > 1) {
      known.name = absl::StrReplaceAll(RegimeText(known.regime), {{",", ""}});
    }
  }
  next_candidate_ = 1 % regimes_.size();
  if (regimes_.size() < 2) state_ = State::kEnded;
}

int64_t AutoRegimes::settle() const {
  return std::max<int64_t>(2, options_.plan.window / 4);
}

int64_t AutoRegimes::RoundBegin(int round) const {
  return options_.first_clock + (options_.clocks_total - options_.first_clock) /
                                    std::max(1, options_.plan.rounds) * round;
}

bool AutoRegimes::HasRoom(int64_t clock) const {
  const int64_t window = options_.plan.window;
  return spent_ + window <= options_.plan.budget &&
         clock + 2 * (window + kChangeClocks) <= options_.clocks_total;
}

bool AutoRegimes::CanTry(size_t candidate) const {
  const Regime& kept = regimes_[kept_].regime;
  const Regime& other = regimes_[candidate].regime;
  const auto can = [this](const Regime& from, const Regime& to) {
    return ChangedRegime(options_.spec, options_.workers, from,
                         ChangeBetween(from, to))
        .ok();
  };
  return can(kept, other) && can(other, kept);
}

// --- What is to be done ------------------------------------------------------

std::optional<AutoRegimes::Action> AutoRegimes::Next(int64_t clock) {
  clock_ = clock;
  if (state_ == State::kIdle && clock >= RoundBegin(round_)) BeginRound(clock);
  if (!note_.empty()) {
    return Action{.reason =
                      absl::StrCat(kAutoReason, std::exchange(note_, ""))};
  }
  if (!ask_.has_value() || ask_->given || clock < ask_->not_before) {
    return std::nullopt;
  }
  ask_->given = true;
  const size_t from =
      state_ == State::kTrying ? results_.back().candidate : kept_;
  return Action{.change = ChangeBetween(regimes_[from].regime,
                                        regimes_[ask_->target].regime),
                .at = ask_->at,
                .reason = absl::StrCat(kAutoReason, ask_->reason)};
}

void AutoRegimes::AskFor(size_t target, int64_t at, std::string reason) {
  ask_ = Ask{.target = target, .at = at, .reason = std::move(reason)};
}

void AutoRegimes::BeginRound(int64_t clock) {
  results_.clear();
  asked_in_round_ = 0;
  if (!HasRoom(clock + options_.plan.window)) {
    return End(absl::StrCat(
        regimes_[kept_].name, " stays: no more is tried, after ", spent_,
        " clocks of trials of at most ", options_.plan.budget));
  }
  BeginWindow(State::kBefore, clock);
}

void AutoRegimes::BeginWindow(State state, int64_t clock) {
  state_ = state;
  window_begin_ = clock;
  window_ = LossWindow();
}

void AutoRegimes::TryNext(int64_t clock) {
  while (asked_in_round_ < regimes_.size() && HasRoom(clock)) {
    const size_t candidate = next_candidate_;
    next_candidate_ = (candidate + 1) % regimes_.size();
    ++asked_in_round_;
    if (candidate == kept_ || regimes_[candidate].banned ||
        !CanTry(candidate)) {
      continue;
    }
    results_.push_back({.candidate = candidate, .before = before_});
    state_ = State::kToTrial;
    return AskFor(candidate, /*at=*/0,
                  absl::StrCat(kTrialBegin, regimes_[candidate].name, " for ",
                               options_.plan.window, " clocks"));
  }
  Decide();
}

void AutoRegimes::Decide() {
  std::optional<size_t> best;
  double ratio = 0;
  for (const Result& result : results_) {
    const Verdict verdict = Judge(result);
    if (!verdict.better || (best.has_value() && verdict.ratio <= ratio)) {
      continue;
    }
    best = result.candidate;
    ratio = verdict.ratio;
  }
  if (best.has_value()) {
    state_ = State::kToKeep;
    return AskFor(
        *best, /*at=*/0,
        absl::StrCat(regimes_[*best].name, " is kept; loss/s: ", Texts()));
  }
  if (!results_.empty()) {
    note_ = absl::StrCat(regimes_[kept_].name, " stays; loss/s: ", Texts());
  }
  EndRound();
}

void AutoRegimes::EndRound() {
  ++round_;
  state_ = State::kIdle;
  const bool has_candidate = [this] {
    for (size_t i = 0; i < regimes_.size(); ++i) {
      if (i != kept_ && !regimes_[i].banned) return true;
    }
    return false;
  }();
  if (round_ >= options_.plan.rounds || !has_candidate) End("");
}

void AutoRegimes::End(std::string why) {
  state_ = State::kEnded;
  ask_.reset();
  if (!why.empty()) note_ = std::move(why);
}

// --- What has happened -------------------------------------------------------

void AutoRegimes::OnStep(int64_t clock, absl::Duration took,
                         std::optional<double> loss) {
  clock_ = clock + 1;
  const bool has_window = state_ == State::kBefore ||
                          state_ == State::kTrying || state_ == State::kAfter;
  if (!has_window) return;
  if (clock >= window_begin_ + settle()) {
    const double seconds = absl::ToDoubleSeconds(took);
    if (loss.has_value() && std::isfinite(*loss)) {
      window_.Add(seconds, *loss);
    } else {
      window_.Skip(seconds);
    }
  }
  if (state_ == State::kTrying) return OnTrialStep(loss);
  if (clock_ < window_begin_ + options_.plan.window) return;
  before_ = window_.Trend();
  if (state_ == State::kAfter) results_.back().after = before_;
  TryNext(clock_);
}

void AutoRegimes::OnTrialStep(std::optional<double> loss) {
  if (!loss.has_value() || leaving_) return;
  if (!std::isfinite(*loss)) {
    return Leave("was left, its loss or its gradient is not finite",
                 /*for_good=*/true);
  }
  ++losses_;
  mean_ = losses_ == 1 ? *loss : mean_ + kMeanWeight * (*loss - mean_);
  const LossTrend& before = results_.back().before;
  if (losses_ < kLossesMin || !before.known) return;
  const double level = before.last;
  if (mean_ <=
      level + std::max(kRise * std::abs(level), kScatters * before.scatter)) {
    return;
  }
  Leave(absl::StrFormat("was left, its loss rose from %.3g to %.3g", level,
                        mean_),
        /*for_good=*/true);
}

void AutoRegimes::Leave(const std::string& why, bool for_good) {
  leaving_ = true;
  Result& result = results_.back();
  result.failure = why;
  Known& candidate = regimes_[result.candidate];
  candidate.banned |= for_good;
  // The way back that is announced comes as soon as another one.
  if (clock_ + kChangeClocks >= window_begin_ + options_.plan.window) return;
  AskFor(kept_, /*at=*/0,
         absl::StrCat("back to ", regimes_[kept_].name, ": ", candidate.name,
                      " ", why));
}

void AutoRegimes::Interrupt(absl::string_view why) {
  if (state_ != State::kTrying || leaving_) return;
  Leave(absl::StrCat("was left, ", why), /*for_good=*/false);
}

void AutoRegimes::OnMade(const Regime& regime) {
  if (!ask_.has_value()) return;
  const size_t target = ask_->target;
  ask_.reset();
  const int64_t first = regime.first_clock();
  switch (state_) {
    case State::kToTrial:
      BeginWindow(State::kTrying, first);
      mean_ = 0;
      losses_ = 0;
      leaving_ = false;
      failed_returns_ = 0;
      return AskFor(kept_, first + options_.plan.window,
                    absl::StrCat("back to ", regimes_[kept_].name, " after ",
                                 options_.plan.window, " clocks of ",
                                 regimes_[target].name));
    case State::kTrying:
      spent_ += first - window_begin_;
      results_.back().trial = window_.Trend();
      return BeginWindow(State::kAfter, first);
    case State::kToKeep:
      kept_ = target;
      return EndRound();
    default:
      return;
  }
}

void AutoRegimes::OnFailed(absl::string_view why) {
  if (!ask_.has_value()) return;
  Known& target = regimes_[ask_->target];
  switch (state_) {
    case State::kToTrial:
      target.banned = true;
      results_.back().failure = absl::StrCat("was not to be had: ", why);
      ask_.reset();
      return TryNext(clock_);
    case State::kTrying:
      if (++failed_returns_ <= kReturnsMax) {
        ask_->given = false;
        ask_->not_before = clock_ + (int64_t{1} << failed_returns_);
        return;
      }
      kept_ = results_.back().candidate;
      return End(absl::StrCat(regimes_[kept_].name, " stays: after ",
                              failed_returns_,
                              " tries there is no way back to ", target.name,
                              ", and no more is tried: ", why));
    case State::kToKeep:
      target.banned = true;
      note_ = absl::StrCat(regimes_[kept_].name, " stays: ", target.name,
                           " is better, but not to be had: ", why);
      ask_.reset();
      return EndRound();
    default:
      return;
  }
}

void AutoRegimes::OnGaveWay() {
  if (ask_.has_value()) ask_->given = false;
}

void AutoRegimes::OnOthersChange() {
  if (ended()) return;
  End("no more is tried: somebody else has changed the regime");
}

// --- Comparing ---------------------------------------------------------------

AutoRegimes::Verdict AutoRegimes::Judge(const Result& result) const {
  const std::string& name = regimes_[result.candidate].name;
  if (!result.failure.empty()) {
    return {.text = absl::StrCat(name, " ", result.failure)};
  }
  const LossTrend& trial = result.trial;
  if (!trial.known || !result.before.known || !result.after.known) {
    return {.text = absl::StrCat(name, ": too few losses to compare")};
  }
  const double kept = (result.before.per_second + result.after.per_second) / 2;
  const double gain = TrialGainOf(options_.spec.auto_regime());
  const double error =
      std::hypot(trial.error, result.before.error / 2, result.after.error / 2);
  const int freedom =
      std::min({trial.freedom, result.before.freedom, result.after.freedom});
  const double noise = ErrorsOf(freedom) * error;
  Verdict verdict;
  verdict.text =
      absl::StrFormat("%s %.3g against %.3g, ", name, trial.per_second, kept);
  if (!(trial.per_second > 0)) {
    absl::StrAppend(&verdict.text, "its loss does not fall");
  } else if (!(trial.per_second > gain * kept)) {
    absl::StrAppend(&verdict.text, "not better by a factor of ", gain);
  } else if (!(trial.per_second - kept > noise)) {
    absl::StrAppendFormat(&verdict.text, "within the noise, %.2g", noise);
  } else {
    absl::StrAppend(&verdict.text, "better");
    verdict.better = true;
    verdict.ratio = trial.per_second / std::max(kept, noise);
  }
  return verdict;
}

std::string AutoRegimes::Texts() const {
  std::string texts;
  for (const Result& result : results_) {
    absl::StrAppend(&texts, texts.empty() ? "" : "; ", Judge(result).text);
  }
  return texts;
}

}  // namespace syncline::worker
