#include "scheduler/core/job/regime_policy.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace syncline::scheduler {
namespace {

// Long enough that one slow step, or one report, decides nothing.
constexpr absl::Duration kWorkWindow = absl::Minutes(1);

// In place of the seconds of a worker that the job goes on without.
constexpr double kLost = -1;

}  // namespace

std::string RulePrefix(size_t rule) {
  return absl::StrCat("rule ", rule + 1, ": ");
}

RegimePolicy::RegimePolicy(const JobSpec& spec, uint32_t workers,
                           const JobStatus& history)
    : work_(workers) {
  for (const RegimeRule& rule : spec.regimes()) {
    rules_.emplace_back().spec = rule;
  }
  // From the last entry back, until an attempt began at an earlier clock: what
  // was lost then is to be decided on again.
  int64_t held = std::numeric_limits<int64_t>::max();
  for (auto entry = history.regimes().rbegin();
       entry != history.regimes().rend(); ++entry) {
    if (!entry->error().empty()) continue;
    const int64_t first = entry->regime().first_clock();
    if (first > held) continue;
    held = first;
    for (size_t i = 0; i < rules_.size(); ++i) {
      if (absl::StartsWith(entry->reason(), RulePrefix(i))) {
        rules_[i].applied = true;
      }
    }
  }
}

// `condition` says why the rule is to be applied; empty: it is not.
template <typename Condition>
void RegimePolicy::Check(Condition condition) {
  for (Rule& rule : rules_) {
    if (rule.applied || !rule.why.empty()) continue;
    rule.why = condition(rule.spec.when(), &rule);
  }
}

void RegimePolicy::OnClock(int64_t clock, int64_t epochs) {
  Check([&](const RegimeRule::When& when, Rule*) {
    if (when.has_clock() && clock >= when.clock()) {
      return absl::StrCat("clock ", when.clock());
    }
    if (when.has_epoch() && epochs >= int64_t{when.epoch()}) {
      return absl::StrCat("epoch ", when.epoch(), " is done");
    }
    return std::string();
  });
}

void RegimePolicy::OnLoss(double loss) {
  if (!std::isfinite(loss)) return;
  Check([&](const RegimeRule::When& when, Rule*) {
    if (!when.has_loss_below() || !(loss < when.loss_below())) {
      return std::string();
    }
    return absl::StrCat("mean training loss ", loss, " is below ",
                        when.loss_below());
  });
}

void RegimePolicy::OnEvaluation(const Evaluation& evaluation) {
  const double loss = evaluation.loss();
  if (!std::isfinite(loss)) return;
  Check([&](const RegimeRule::When& when, Rule* rule) {
    if (!when.has_plateau()) return std::string();
    const RegimeRule::Plateau& plateau = when.plateau();
    const bool improved =
        !rule->best_loss.has_value() ||
        loss < *rule->best_loss -
                   std::abs(*rule->best_loss) * plateau.min_improvement();
    if (improved) rule->best_loss = loss;
    rule->evaluations = improved ? 0 : rule->evaluations + 1;
    if (rule->evaluations < static_cast<int>(plateau.evaluations())) {
      return std::string();
    }
    return absl::StrCat("no improvement of the test loss ", *rule->best_loss,
                        " in ", rule->evaluations, " evaluations");
  });
}

void RegimePolicy::OnWork(uint32_t rank, int64_t clock, double seconds,
                          absl::Time now) {
  if (rank >= work_.size()) return;
  Work& work = work_[rank];
  if (!work.known) work = {true, clock, seconds, clock, seconds};
  work.clock = clock;
  work.seconds = seconds;
  if (window_began_ == absl::InfinitePast()) window_began_ = now;
  if (now < window_began_ + kWorkWindow) return;
  const std::vector<double> by_rank = StepSeconds();
  window_began_ = now;
  for (Work& one : work_) {
    one.first_clock = one.clock;
    one.first_seconds = one.seconds;
  }
  std::vector<double> sorted;
  for (const double seconds : by_rank) {
    if (seconds != kLost) sorted.push_back(seconds);
  }
  if (sorted.size() < 2) return;
  std::sort(sorted.begin(), sorted.end());
  // The lower one of an even number: the slowest of two is no median.
  const double median = sorted[(sorted.size() - 1) / 2];
  const double slowest = sorted.back();
  if (!(median > 0)) return;
  Check([&](const RegimeRule::When& when, Rule*) {
    if (!when.has_straggler() || !(slowest > when.straggler() * median)) {
      return std::string();
    }
    const auto rank_of = std::find(by_rank.begin(), by_rank.end(), slowest);
    return absl::StrCat("worker ", rank_of - by_rank.begin(), " has taken ",
                        slowest / median,
                        " times as long for a step as the "
                        "median worker, for a minute");
  });
}

std::vector<double> RegimePolicy::StepSeconds() const {
  std::vector<double> seconds;
  for (const Work& work : work_) {
    if (work.lost) {
      seconds.push_back(kLost);
      continue;
    }
    if (!work.known || work.clock <= work.first_clock) return {};
    seconds.push_back((work.seconds - work.first_seconds) /
                      static_cast<double>(work.clock - work.first_clock));
  }
  return seconds;
}

std::optional<RegimePolicy::Decision> RegimePolicy::Next() {
  for (size_t i = 0; i < rules_.size(); ++i) {
    Rule& rule = rules_[i];
    if (rule.applied || rule.why.empty()) continue;
    rule.applied = true;
    return Decision{.change = rule.spec.then(),
                    .reason = absl::StrCat(RulePrefix(i), rule.why)};
  }
  return std::nullopt;
}

}  // namespace syncline::scheduler
