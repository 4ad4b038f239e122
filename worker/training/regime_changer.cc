#include "worker/training/regime_changer.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/clock.h"
#include "common/base/fault_points.h"
#include "common/base/status_macros.h"
#include "common/cuts/cut_id.h"
#include "common/job/regime_rules.h"
#include "common/job/strategy_change.h"
#include "common/regime/job_regimes.h"
#include "common/system/log.h"

namespace syncline::worker {
namespace {

// Shards must not let go of the cut between the first one that has the new
// regime and the last. A chief that hangs is noticed by its silence.
constexpr absl::Duration kHold = absl::Hours(24);
// Numbers of ids at one clock: behind those of other cuts of the chief.
constexpr uint32_t kFirstNumber = 512;
constexpr uint32_t kNumbers = 256;

void SetTime(RegimeTransition* transition) {
  const int64_t nanoseconds = absl::ToUnixNanos(absl::Now());
  transition->mutable_time()->set_seconds(nanoseconds / 1'000'000'000);
  transition->mutable_time()->set_nanos(
      static_cast<int32_t>(nanoseconds % 1'000'000'000));
}

}  // namespace

RegimeChanger::RegimeChanger(
    const PreparedJob& job, const Epochs& epochs, ParameterExchange* parameters,
    std::function<void(const RegimeTransition&)> report, OnEnd on_end)
    : job_(job),
      epochs_(epochs),
      parameters_(parameters),
      report_(std::move(report)),
      on_end_(std::move(on_end)) {}

void RegimeChanger::Request(const RegimeChange& change,
                            const std::string& reason) {
  const Wanted wanted = {change.SerializeAsString(), reason};
  RegimeTransition refused;
  refused.set_reason(reason);
  SetTime(&refused);
  {
    MutexLock lock(&mu_);
    if (wanted_ == wanted || waiting_ == wanted || last_made_ == wanted) {
      return;
    }
    if (!finished_ && !wanted_.has_value()) {
      wanted_ = wanted;
      return;
    }
    if (!finished_ && wanted_->is_own && !waiting_.has_value()) {
      waiting_ = wanted;
      return;
    }
    refused.set_error(finished_ ? "the job makes no more steps"
                                : "a change of the regime is under way");
  }
  report_(refused);
}

bool RegimeChanger::Try(const RegimeChange& change, const std::string& reason,
                        int64_t not_before) {
  MutexLock lock(&mu_);
  if (waiting_.has_value()) return false;
  if (wanted_.has_value() && !wanted_->is_own) return false;
  wanted_ = {.encoded = change.SerializeAsString(),
             .reason = reason,
             .is_own = true,
             .not_before = not_before};
  replaced_ = open_.has_value();
  return true;
}

void RegimeChanger::TellStay(const std::string& decision) {
  RegimeTransition transition;
  *transition.mutable_regime() = ToProto(job_.regimes.regimes().back());
  transition.set_reason(decision);
  SetTime(&transition);
  LogInfo("the regime stays")
      .Job(job_.assignment.job_id())
      .Field("regime", RegimeText(transition.regime()))
      .Field("reason", decision);
  report_(transition);
}

bool RegimeChanger::HasOwnToAnnounce() const {
  if (open_.has_value()) return false;
  MutexLock lock(&mu_);
  return wanted_.has_value() && wanted_->is_own;
}

absl::Status RegimeChanger::GiveWay(int64_t clock) {
  bool gives_way = false;
  {
    MutexLock lock(&mu_);
    gives_way = waiting_.has_value();
  }
  if (open_.has_value() && (gives_way || replaced_)) {
    SYNCLINE_RETURN_IF_ERROR(PutOff(clock));
  }
  if (!gives_way) return absl::OkStatus();
  RegimeTransition own;
  {
    MutexLock lock(&mu_);
    own.set_reason(wanted_->reason);
    wanted_ = std::exchange(waiting_, std::nullopt);
  }
  if (on_end_ != nullptr) on_end_(/*is_own=*/true, End::kGaveWay, own);
  return absl::OkStatus();
}

std::optional<RegimeChanger::Wanted> RegimeChanger::TakeWanted() const {
  MutexLock lock(&mu_);
  return wanted_;
}

bool RegimeChanger::WantsOtherExchange() const {
  const std::optional<Wanted> wanted = TakeWanted();
  if (!wanted.has_value()) return false;
  RegimeChange change;
  change.ParseFromString(wanted->encoded);  // it was encoded here
  const Regime present = ToProto(job_.regimes.regimes().back());
  Regime next = present;
  if (change.strategy() != STRATEGY_UNSPECIFIED) {
    next.set_strategy(change.strategy());
  }
  if (change.wire_type() != WIRE_TYPE_UNSPECIFIED) {
    next.set_wire_type(change.wire_type());
  }
  return !FieldOfOtherExchange(present, next).empty();
}

absl::Status RegimeChanger::BeforeStep(int64_t clock, absl::Time now) {
  SYNCLINE_RETURN_IF_ERROR(GiveWay(clock));
  if (open_.has_value()) return absl::OkStatus();
  const std::optional<Wanted> wanted = TakeWanted();
  if (!wanted.has_value()) return absl::OkStatus();
  return Announce(clock, *wanted, now);
}

absl::Status RegimeChanger::Announce(int64_t clock, const Wanted& wanted,
                                     absl::Time now) {
  const TrainingRegime& present = job_.regimes.regimes().back();
  RegimeChange change;
  change.ParseFromString(wanted.encoded);  // it was encoded here
  const absl::StatusOr<Regime> next = ChangedRegime(
      job_.spec(), static_cast<uint32_t>(job_.assignment.workers_size()),
      ToProto(present), change);
  if (!next.ok()) {
    Fail(next.status());
    return absl::OkStatus();
  }
  const absl::string_view field = FieldOfOtherExchange(ToProto(present), *next);
  if (!field.empty() && job_.has_evaluator()) {
    Fail(absl::UnimplementedError(absl::StrCat(
        field,
        ": cannot change while an evaluator takes part in the job; use a "
        "cluster without one")));
    return absl::OkStatus();
  }
  // No rank makes a step whose values it may have read already. In SYNC no rank
  // is past the next one before this rank has made its own.
  const int64_t first =
      std::max(clock + (present.sync() ? 2 : 1), wanted.not_before);
  const auto workers = static_cast<size_t>(job_.assignment.workers_size());
  SYNCLINE_ASSIGN_OR_RETURN(const TrainingRegime regime,
                            ReadRegime("regime", *next));
  OpenCut cut;
  cut.id = MakeCutId(job_.assignment.attempt(), first, CutSeries::kChief,
                     kFirstNumber + announced_++ % kNumbers);
  const auto too_late = [&](int64_t at) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the job ends with clock ", epochs_.clocks_total - 1,
        ", and the next clock at which its regime can change is ", at));
  };
  if (first >= epochs_.clocks_total) {
    Fail(too_late(first));
    return absl::OkStatus();
  }
  const absl::StatusOr<std::vector<int64_t>> agreed =
      parameters_->BeginCut({.id = cut.id,
                             .use = CutUse::kRegime,
                             .clocks = std::vector<int64_t>(workers, first),
                             .hold = kHold,
                             .regime = regime});
  if (absl::IsCancelled(agreed.status())) return agreed.status();
  // Shards that have not ended the cut of the change before, or have not passed
  // one for a checkpoint: it goes by itself.
  if (absl::IsFailedPrecondition(agreed.status())) {
    refused_since_ = std::min(refused_since_, now);
    if (now < refused_since_ + kTriedFor) return absl::OkStatus();
  }
  if (!agreed.ok()) {
    // Where the exchange itself has failed, its next call says so.
    Fail(agreed.status());
    return absl::OkStatus();
  }
  cut.regime = *next;
  cut.regime.set_first_clock((*agreed)[0]);
  if ((*agreed)[0] >= epochs_.clocks_total) {
    SYNCLINE_RETURN_IF_ERROR(parameters_->EndCut(cut.id, clock));
    Fail(too_late((*agreed)[0]));
    return absl::OkStatus();
  }
  LogInfo("the regime is to change")
      .Job(job_.assignment.job_id())
      .Field("clock", (*agreed)[0])
      .Field("from", RegimeText(ToProto(present)))
      .Field("to", RegimeText(cut.regime))
      .Field("reason", wanted.reason);
  refused_since_ = absl::InfiniteFuture();
  open_ = std::move(cut);
  return absl::OkStatus();
}

absl::Status RegimeChanger::PutOff(int64_t clock) {
  replaced_ = false;
  const OpenCut cut = *std::exchange(open_, std::nullopt);
  return parameters_->EndCut(cut.id, clock);
}

absl::Status RegimeChanger::Commit(int64_t clock) {
  open_->waiting_since = MonotonicNow();
  SYNCLINE_RETURN_IF_ERROR(parameters_->AwaitCut(open_->id, clock));
  const absl::Status prepared = parameters_->PrepareRegime(open_->id, clock);
  if (absl::IsCancelled(prepared)) return prepared;
  if (!prepared.ok()) {
    SYNCLINE_RETURN_IF_ERROR(PutOff(clock));
    Fail(prepared);
    return absl::OkStatus();
  }
  absl::Status committed = AtFaultPoint(FaultPoint::kRegimeCommit);
  if (committed.ok()) committed = parameters_->CommitRegime(open_->id, clock);
  if (committed.ok()) committed = AtFaultPoint(FaultPoint::kRegimeCommitted);
  return Annotate(
      committed,
      absl::StrCat("the change of the regime at clock ", clock,
                   " has not reached all members, so the job cannot go on"));
}

void RegimeChanger::ReportDone() {
  const OpenCut cut = *std::exchange(open_, std::nullopt);
  RegimeTransition transition;
  *transition.mutable_regime() = cut.regime;
  transition.set_pause_seconds(
      absl::ToDoubleSeconds(MonotonicNow() - cut.waiting_since));
  LogInfo("the regime has changed")
      .Job(job_.assignment.job_id())
      .Field("clock", cut.regime.first_clock())
      .Field("to", RegimeText(cut.regime))
      .Field("pause_seconds", transition.pause_seconds());
  Report(std::move(transition));
}

void RegimeChanger::Finish() {
  {
    MutexLock lock(&mu_);
    finished_ = true;
  }
  open_.reset();
  // One that has waited for another one, too.
  while (TakeWanted().has_value()) {
    Fail(absl::FailedPreconditionError("the job makes no more steps"));
  }
}

void RegimeChanger::Fail(const absl::Status& why) {
  LogWarning("the regime does not change")
      .Job(job_.assignment.job_id())
      .Status(why);
  RegimeTransition transition;
  transition.set_error(std::string(why.message()));
  Report(std::move(transition));
}

void RegimeChanger::Report(RegimeTransition transition) {
  refused_since_ = absl::InfiniteFuture();
  bool is_own = false;
  {
    MutexLock lock(&mu_);
    if (wanted_.has_value()) transition.set_reason(wanted_->reason);
    is_own = wanted_.has_value() && wanted_->is_own;
    if (transition.error().empty() && !is_own) last_made_ = wanted_;
    wanted_ = std::exchange(waiting_, std::nullopt);
  }
  SetTime(&transition);
  report_(transition);
  if (on_end_ == nullptr) return;
  on_end_(is_own, transition.error().empty() ? End::kMade : End::kFailed,
          transition);
}

}  // namespace syncline::worker
