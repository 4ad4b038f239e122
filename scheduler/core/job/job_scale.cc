// A job that goes on with another number of workers: Job's part of it.

#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/job/elastic_validator.h"
#include "common/job/evaluate_validator.h"
#include "common/job/lease_rules.h"
#include "common/job/lost_workers.h"
#include "common/job/stop_reasons.h"
#include "scheduler/core/describe.h"
#include "scheduler/core/job/job.h"
#include "scheduler/core/job/regime_history.h"
#include "scheduler/core/job/restart_policy.h"
#include "scheduler/core/job/worker_range.h"

namespace syncline::scheduler {

absl::Status Job::CheckScale(uint32_t workers) const {
  const auto refuse = [&](const auto&... why) {
    return absl::FailedPreconditionError(absl::StrCat(
        "job ", id(), " cannot have another number of workers: ", why...));
  };
  if (IsOver()) {
    return refuse("it is ", JobState_Name(status_.state()), " already");
  }
  if (OnlyEvaluates(status_.spec())) {
    return refuse("it trains nothing (evaluate.only)");
  }
  const bool normalizes = absl::c_any_of(
      parameters_,
      [](const ParameterInfo& parameter) { return parameter.has_momentum(); });
  const absl::Status fits = CheckWorkersOf(status_.spec(), workers, normalizes);
  if (absl::IsFailedPrecondition(fits)) return refuse(fits.message());
  SYNCLINE_RETURN_IF_ERROR(fits);
  const Regime regime = RegimesInForce(status_).back();
  const ConsistencySpec& consistency = regime.consistency();
  if (LeasesData(status_.spec()) &&
      consistency.mode() == ConsistencySpec::BOUNDED_STALENESS) {
    const std::string why =
        WhyBoundTooTight(consistency.staleness_bound(), workers);
    if (!why.empty()) return refuse("staleness_bound: ", why);
  }
  // It has not begun: nothing is to be moved.
  if (IsWaiting() && status_.attempt() == 0) return absl::OkStatus();
  if (!status_.spec().has_checkpoint()) {
    return refuse(
        "it has no `checkpoint` to go on from with these; cancel it, and "
        "submit it with resources.workers: ",
        workers);
  }
  if (KeepsCheckpointsOnPs(status_.spec())) {
    return refuse(
        "without checkpoint.directory each ps keeps its part of a checkpoint "
        "in its own --checkpoint-dir, where no other ps finds it");
  }
  if (!KeepsClocks(status_.spec(), regime)) {
    return refuse("it trains by ",
                  ConsistencySpec::Mode_Name(consistency.mode()),
                  " now, and the number changes in SYNC only, where all "
                  "workers are at one clock; `synctl regime ",
                  id(), " --mode sync` brings it there");
  }
  if (status_.state() == RUNNING && !attempt_->abandoned &&
      (stopping() || IsAtItsEnd())) {
    return refuse("it is about to end");
  }
  if (attempt_->regime_wanted.has_value() && !attempt_->abandoned) {
    return refuse(
        "a change of its regime is under way; ask again once `synctl get ",
        id(), "` shows that");
  }
  return absl::OkStatus();
}

bool Job::Scale(uint32_t workers, absl::string_view reason,
                ClusterActions* actions) {
  const WorkerRange range = RangeAfterSave(status_);
  const bool has_them =
      status_.attempt() == 0 || WorkersLeft(status_) == workers;
  if (range.wanted == workers && range.most == workers && has_them) {
    return false;
  }
  status_.set_wanted_workers(workers);
  attempt_->scaled = absl::StrCat("scaled to ", CountText(workers, "worker"),
                                  reason.empty() ? "" : " (", reason,
                                  reason.empty() ? "" : ")");
  actions->push_back(PersistJob{id()});
  actions->push_back(JobChanged{id()});
  return true;
}

bool Job::HasItsWorkers() const {
  const WorkerRange range = RangeAfterSave(status_);
  const uint32_t had = WorkersLeft(status_);
  return had == range.wanted && had == range.most;
}

bool Job::GoBackToWorkersThatRan(absl::string_view problems, absl::Time now,
                                 ClusterActions* actions) {
  const auto had = static_cast<uint32_t>(status_.workers_size());
  const bool was_said = status_.wanted_workers() == had && had != ran_with_;
  if (ran_with_ == 0 || (had <= ran_with_ && !was_said)) return false;
  // The record is all that says so to attempts, and to later schedulers.
  status_.set_wanted_workers(ran_with_);
  Abandon(
      absl::StrCat(kPlannedMove, "with ", CountText(had, "worker"),
                   " it cannot go on, so it goes back to ", ran_with_,
                   ", until `synctl scale` says another number: ", problems),
      "planned, no restart is counted", now, actions);
  return true;
}

bool Job::MayTakeMore(absl::Time now, absl::Duration pause) const {
  const absl::Time since = std::max(attempt_->running_since, attempt_->lost_at);
  return !attempt_->scaled.empty() || now >= since + pause;
}

std::string Job::ScaleText(uint32_t workers, absl::string_view why) const {
  return absl::StrCat(attempt_->scaled.empty() ? why : attempt_->scaled,
                      ", goes on with ", workers, " instead of ",
                      CountText(WorkersLeft(status_), "worker"));
}

}  // namespace syncline::scheduler
