#include "worker/training/regime_trials.h"

#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/job/auto_regime_rules.h"
#include "common/regime/job_regimes.h"

namespace syncline::worker {
namespace {

AutoRegimes::Options AutoOptions(const PreparedJob& job, const Epochs& epochs) {
  AutoRegimes::Options options;
  options.spec = job.spec();
  options.workers = static_cast<uint32_t>(job.assignment.workers_size());
  auto regimes = AutoRegimesOf(options.spec, options.workers);
  auto plan = PlanTrials(options.spec, options.workers, epochs.clocks_total);
  SYNCLINE_CHECK(regimes.ok() && plan.ok());
  options.candidates = *std::move(regimes);
  options.plan = *plan;
  options.current = ToProto(job.regimes.regimes().back());
  const std::vector<Regime> past(job.assignment.regimes().begin(),
                                 job.assignment.regimes().end());
  options.spent = TrialClocksIn(past, plan->window);
  options.first_clock = job.assignment.start_clock();
  options.clocks_total = epochs.clocks_total;
  return options;
}

}  // namespace

RegimeTrials::RegimeTrials(const PreparedJob& job, const Epochs& epochs,
                           RegimeChanger* changer)
    : changer_(changer), auto_(AutoOptions(job, epochs)) {}

void RegimeTrials::BeforeStep(int64_t clock, bool is_checkpoint_wanted) {
  if (is_checkpoint_wanted) {
    auto_.Interrupt("since a checkpoint was asked for");
  }
  const std::optional<AutoRegimes::Action> action = auto_.Next(clock);
  if (!action.has_value()) return;
  if (!action->change.has_value()) {
    return changer_->TellStay(action->reason);
  }
  if (!changer_->Try(*action->change, action->reason, action->at)) {
    auto_.OnGaveWay();
  }
}

void RegimeTrials::OnEnd(bool is_own, RegimeChanger::End end,
                         const RegimeTransition& transition) {
  using End = RegimeChanger::End;
  if (!is_own) {
    // The regime that a user has asked for stands, whatever it is.
    if (end == End::kMade) auto_.OnOthersChange();
    return;
  }
  switch (end) {
    case End::kMade:
      return auto_.OnMade(transition.regime());
    case End::kFailed:
      return auto_.OnFailed(transition.error());
    case End::kGaveWay:
      return auto_.OnGaveWay();
  }
}

std::string TrialProblem(const PreparedJob& job, const Epochs& epochs) {
  if (!job.spec().has_auto_regime() || !job.trains()) return "";
  return std::string(
      PlanTrials(job.spec(),
                 static_cast<uint32_t>(job.assignment.workers_size()),
                 epochs.clocks_total)
          .status()
          .message());
}

}  // namespace syncline::worker
