// Jobs with leased data: Trainer's part of it.

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/job/evaluate_validator.h"
#include "common/system/log.h"
#include "worker/data/prefetcher.h"
#include "worker/training/trainer.h"

namespace syncline::worker {

absl::StatusOr<int64_t> Trainer::EndLeasedStep(int64_t clock) {
  const int64_t next = next_lease_;
  const size_t regimes = job_.regimes.regimes().size();
  bool has_values = !WaitsAtCutUpTo(clock, next);
  bool is_result_due =
      next == epochs_.clocks_total && EvaluatesCheckpoints(job_.spec());
  if (job_.is_chief()) {
    for (int64_t at = clock + 1; at <= next && !early_end_.has_value(); ++at) {
      has_values &= !ReadsCutAt(at);
      SYNCLINE_RETURN_IF_ERROR(AfterStep(at));
      // A cut that was open before the chief's last step was in the way.
      if (is_result_due && at < next && !early_end_.has_value() &&
          !checkpoints_->IsOpen() && !changer_->IsOpen()) {
        is_result_due = false;
        SYNCLINE_RETURN_IF_ERROR(checkpoints_->BeforeStep(at, next));
      }
    }
  } else {
    SYNCLINE_RETURN_IF_ERROR(ChangeRegime(next));
  }
  SYNCLINE_ASSIGN_OR_RETURN(const bool made_others, MakeReturned());
  has_values &= !made_others;
  if (next >= final_clock()) return next;
  // The values of a cut, or of a clock before this rank's next one, may be
  // older than the bound of that allows.
  if (!has_values || regimes != job_.regimes.regimes().size()) {
    if (rows_.has_value()) rows_->Forget();
    SYNCLINE_RETURN_IF_ERROR(parameters_.Pull(next));
  }
  SYNCLINE_RETURN_IF_ERROR(TakeLease(next));
  return next;
}

absl::Status Trainer::TakeLease(int64_t next) {
  next_lease_ = parameters_.leased_clock();
  if (next_lease_ <= next) {
    return absl::InternalError(absl::StrCat(
        job_.task_name(), " of job ", job_.assignment.job_id(),
        ": no answer for clock ", next,
        " has said which clock comes after it, but ", next_lease_));
  }
  if (next_lease_ < epochs_.clocks_total) prefetcher_.AddStep(next_lease_);
  return absl::OkStatus();
}

absl::StatusOr<bool> Trainer::MakeReturned() {
  const auto returned = parameters_.TakeReturned();
  for (const ParameterExchange::ReturnedClock& lost : returned) {
    SYNCLINE_RETURN_IF_ERROR(MakeForLost(lost));
  }
  // The answers meanwhile had clocks that are made by now; the next ones say
  // what is still open.
  parameters_.TakeReturned();
  return !returned.empty();
}

// MakeForLost is a step like this rank's own. But its values are read first,
// and its batch is none of those that were read ahead.
absl::Status Trainer::MakeForLost(
    const ParameterExchange::ReturnedClock& lost) {
  LogInfo("a clock of a lost worker is made in its place")
      .Job(job_.assignment.job_id())
      .Field("rank", lost.rank)
      .Field("clock", lost.clock);
  profiler_.BeginStep(lost.clock);
  Prefetcher::Options options = PrefetcherOptionsOf(job_);
  options.depth = 1;
  Prefetcher batches(job_.train.get(), options);
  batches.AddStep(lost.clock);
  const bool is_last = lost.next_clock == 0;
  OpenStep step = {
      .clock = lost.clock,
      .next_clock = is_last ? epochs_.clocks_total : lost.next_clock,
      .is_last = is_last,
      .pulls = false,
      .for_rank = lost.rank};
  if (rows_.has_value()) rows_->Forget();
  SYNCLINE_RETURN_IF_ERROR(parameters_.Pull(lost.clock));
  SYNCLINE_RETURN_IF_ERROR(Begin(&step, &batches));
  SYNCLINE_RETURN_IF_ERROR(ComputeGradient(&step));
  SendGradient(&step);
  SYNCLINE_RETURN_IF_ERROR(AwaitValues(&step));
  meter_.AddStepOfOther(step.samples, step.loss_sum, step.times);
  history_.Add(made_, step.samples, step.loss_sum, scaler_.scale(),
               history_watch_.Lap());
  options_.metrics->OnStep(step.samples, step.times);
  profiler_.EndStep(step.samples);
  return absl::OkStatus();
}

// With leased data the values of the next step may want steps of others that
// are held at the cut, and the chief would wait for them, and they for it.
bool Trainer::WaitsAtCutUpTo(int64_t clock, int64_t next) const {
  if (ReadsCutUpTo(clock, next)) return true;
  if (!leases_ || !job_.is_chief()) return false;
  return checkpoints_->IsAtCut(next) ||
         (changer_->IsOpen() && changer_->clock() <= next);
}

}  // namespace syncline::worker
