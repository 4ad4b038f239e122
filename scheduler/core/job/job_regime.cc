// The regime of a running job, which users and the job's own rules change:
// Job's part of it.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/utf8.h"
#include "common/job/elastic_validator.h"
#include "common/job/regime_rules.h"
#include "common/job/strategy_change.h"
#include "common/job/strategy_rules.h"
#include "scheduler/core/job/job.h"
#include "scheduler/core/job/regime_history.h"

namespace syncline::scheduler {
namespace {

// Of a user's reason for a change.
constexpr size_t kReasonBytesMax = 1 << 10;

}  // namespace

bool Job::TrainsWithoutPs() const {
  const StrategyRule* const rule =
      FindStrategyRule(RegimesInForce(status_).back().strategy());
  return rule != nullptr && !rule->has_ps;
}

void Job::TakeRegimeReport(const RegimeTransition& transition, absl::Time now,
                           ClusterActions* actions) {
  const bool had_ps = !TrainsWithoutPs();
  if (!TakeRegime(transition, now, &status_)) return;
  if (transition.error().empty()) {
    attempt_->reached_clock =
        std::max(attempt_->reached_clock, transition.regime().first_clock());
  }
  // Others report from now on what was skipped, all of it.
  if (had_ps == TrainsWithoutPs()) attempt_->ps_reports = {};
  if (attempt_->regime_wanted.has_value() &&
      attempt_->regime_wanted->reason() == transition.reason()) {
    attempt_->regime_wanted.reset();
    regime_outcome_ = *status_.regimes().rbegin();
  }
  // A later attempt trains by it, also if the scheduler is another one.
  actions->push_back(PersistJob{id()});
}

void Job::ApplyRegimeRules(const WorkerReport& report, bool is_new_evaluation,
                           const JobMember& member, absl::Time now,
                           ClusterActions* actions) {
  if (status_.spec().regimes().empty() || stopping()) return;
  RegimePolicy& policy = *attempt_->regime_policy;
  if (is_new_evaluation) policy.OnEvaluation(report.evaluation());
  if (report.has_progress() && member.role == JobMember::Role::kWorker) {
    const WorkerProgress& work = report.progress();
    policy.OnWork(member.rank(), work.clock(),
                  work.compute_seconds() + work.data_seconds(), now);
    const JobProgress all =
        attempt_->progress->Summary(now - attempt_->running_since);
    const int64_t per_epoch = attempt_->clocks_per_epoch;
    policy.OnClock(all.clock(), per_epoch > 0 ? all.clock() / per_epoch : 0);
    if (all.has_loss()) policy.OnLoss(all.loss());
  }
  // One change after the other. The user who asked for the one before is
  // answered after this report, and the outcome must be there until then.
  if (attempt_->regime_wanted.has_value() || report.has_regime()) return;
  const std::optional<RegimePolicy::Decision> decision = policy.Next();
  if (!decision.has_value()) return;
  ChangeRegimeRequest request;
  *request.mutable_change() = decision->change;
  request.set_reason(decision->reason);
  absl::StatusOr<SchedulerMessage> message = RequestRegime(request);
  if (message.ok()) {
    const absl::StatusOr<SessionId> chief = WorkerSession(0);
    if (chief.ok()) {
      actions->push_back(SendCommand{*chief, *std::move(message)});
    }
    return;
  }
  RegimeTransition refused;
  refused.set_reason(decision->reason);
  refused.set_error(std::string(message.status().message()));
  TakeRegime(refused, now, &status_);
  actions->push_back(PersistJob{id(), /*durable=*/false});
}

absl::StatusOr<SchedulerMessage> Job::RequestRegime(
    const ChangeRegimeRequest& request) {
  if (attempt_->regime_wanted.has_value()) {
    return absl::AbortedError(
        absl::StrCat("job ", id(), ": a change of the regime is under way: ",
                     attempt_->regime_wanted->reason(),
                     "; try again when `synctl get ", id(), "` shows it"));
  }
  const std::vector<Regime> regimes = RegimesInForce(status_);
  if (regimes.size() >= kRegimeChangesMax) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "job ", id(), " has changed its regime ", regimes.size() - 1,
        " times, which is the most there are"));
  }
  const auto changed = [&](const Regime& from) {
    return ChangedRegime(status_.spec(),
                         static_cast<uint32_t>(status_.workers_size()), from,
                         request.change());
  };
  const absl::StatusOr<Regime> asked = changed(regimes.back());
  if (!asked.ok()) {
    // A regime that the job only tries it leaves again by itself.
    const std::string trial = TrialInForce(status_);
    if (trial.empty() || regimes.size() < 2 ||
        !changed(regimes[regimes.size() - 2]).ok()) {
      return asked.status();
    }
    return absl::AbortedError(absl::StrCat(
        asked.status().message(), "; it only tries that (", trial,
        "): try again when `synctl get ", id(), "` shows that it is over"));
  }
  const Regime& next = *asked;
  const ConsistencySpec::Mode mode = next.consistency().mode();
  if (mode != ConsistencySpec::SYNC &&
      mode != ConsistencySpec::MODE_UNSPECIFIED) {
    const std::string why = WhyTiedToSync(
        status_.spec(), static_cast<uint32_t>(status_.workers_size()),
        status_.wanted_workers());
    if (!why.empty()) {
      return absl::FailedPreconditionError(
          absl::StrCat("mode: cannot be ", ConsistencySpec::Mode_Name(mode),
                       " in job ", id(), ": ", why));
    }
  }
  const absl::string_view field = FieldOfOtherExchange(regimes.back(), next);
  if (status_.has_evaluator() && !field.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        field, ": cannot change while an evaluator takes part in job ", id(),
        "; use a cluster without one"));
  }
  if (status_.lost_workers_size() > 0 && !field.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        field, ": cannot change while job ", id(),
        " goes on without a worker that it has lost; it can once the job has "
        "another one in its place"));
  }
  SchedulerMessage message;
  ChangeRegime* const change = message.mutable_change_regime();
  change->set_job_id(id());
  change->set_attempt(attempt_->pass.attempt);
  *change->mutable_change() = request.change();
  change->set_reason(
      Utf8Shortened(Utf8Text(request.reason()), kReasonBytesMax));
  attempt_->regime_wanted = *change;
  regime_outcome_.reset();
  return message;
}

std::optional<absl::StatusOr<RegimeTransition>> Job::RegimeOutcome() const {
  if (regime_outcome_.has_value()) {
    if (regime_outcome_->error().empty()) return *regime_outcome_;
    return absl::FailedPreconditionError(absl::StrCat(
        "job ", id(),
        ": the regime has not changed: ", regime_outcome_->error()));
  }
  if (status_.state() == RUNNING && !stopping() &&
      attempt_->regime_wanted.has_value()) {
    return std::nullopt;
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "job ", id(), " is ", JobState_Name(status_.state()),
      stopping() && !IsOver() ? " and about to end this attempt" : "",
      ", before its regime has changed"));
}

}  // namespace syncline::scheduler
