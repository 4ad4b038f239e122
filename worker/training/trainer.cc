#include "worker/training/trainer.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/fault_points.h"
#include "common/base/status_macros.h"
#include "common/job/lease_rules.h"
#include "common/job/local_rules.h"
#include "common/job/step_shares.h"
#include "common/regime/leased_clock.h"
#include "common/system/log.h"
#include "common/system/periodic_task.h"
#include "common/update/update_spec.h"
#include "kernels/optimizer/finite.h"
#include "worker/compute/initializers.h"

namespace syncline::worker {
namespace {

constexpr absl::Duration kReportPeriod = absl::Milliseconds(500);
// How often a wait for data looks at the stop flag.
constexpr absl::Duration kStopPeriod = absl::Milliseconds(200);
// A worker whose loss is never finite need not say so in every step.
constexpr absl::Duration kWarningPeriod = absl::Seconds(10);
// How long a worker waits for another one, which has spoilt its step, to tell
// the scheduler why the job fails.
constexpr absl::Duration kRootCauseGrace = absl::Seconds(5);

Epochs EpochsOf(const JobSpec& spec, const Prefetcher::Options& options) {
  const Rounds rounds = {BatchPlan(options.plan).steps_per_epoch(),
                         options.steps_of_clock};
  return Epochs::Of(spec.training(), rounds.clocks_per_epoch());
}

}  // namespace

Prefetcher::Options PrefetcherOptionsOf(const PreparedJob& job) {
  const JobSpec& spec = job.spec();
  Prefetcher::Options options;
  options.plan.sample_count = job.train->size();
  options.plan.batch_size = spec.training().batch_size();
  options.plan.global_batch = spec.training().global_batch();
  options.plan.workers = static_cast<uint32_t>(job.assignment.workers_size());
  options.plan.rank = job.rank;
  options.plan.shuffle = spec.data().shuffle();
  options.plan.seed = spec.training().seed();
  options.plan.buckets = job.train->buckets();
  if (spec.data().train().has_criteo()) {
    options.plan.window_samples = spec.data().train().criteo().window_samples();
  }
  options.leases = LeasesData(spec);
  if (options.leases) {
    options.plan.workers = 1;
    options.plan.rank = 0;
  }
  options.steps_of_clock = StepsOfClock(spec);
  options.clocks = EpochsOf(spec, options).clocks_total;
  // Train refuses a clock that the job does not have.
  options.first_clock =
      std::clamp<int64_t>(job.assignment.start_clock(), 0, options.clocks);
  return options;
}

Epochs EpochsOf(const PreparedJob& job) {
  return EpochsOf(job.spec(), PrefetcherOptionsOf(job));
}

Trainer::Trainer(const PreparedJob& job, JobExchange exchange, Options options)
    : job_(job),
      options_(std::move(options)),
      executor_(*job.executor),
      prefetcher_(job.train.get(), PrefetcherOptionsOf(job)),
      epochs_(Epochs::Of(job.spec().training(),
                         prefetcher_.rounds().clocks_per_epoch())),
      meter_(job.rank, epochs_, job.assignment.start_clock(), MonotonicNow(),
             job.counts.get()),
      leases_(LeasesData(job.spec())),
      profiler_(job, &stop_, options_.on_profile),
      exchange_(std::move(exchange)),
      scaler_(job, exchange_.parameters.get(), options_.metrics, &meter_),
      passes_(&executor_, options_.metrics, &meter_) {
  if (job.test != nullptr) {
    evaluator_.emplace(job, epochs_, &parameters_, options_.metrics,
                       options_.on_evaluation, options_.on_activity);
  }
  if (job.is_chief() && leases_) {
    parameters_.UseReturned([this] { return MakeReturned().status(); });
  }
  if (job.is_chief()) {
    checkpoints_.emplace(job, epochs_, &parameters_, options_.checkpoints);
    changer_.emplace(
        job, epochs_, &parameters_,
        [this](const RegimeTransition& transition) {
          if (options_.on_regime_change == nullptr) return;
          options_.on_regime_change(transition);
        },
        [this](bool is_own, RegimeChanger::End end,
               const RegimeTransition& transition) {
          if (!trials_.has_value()) return;
          trials_->OnEnd(is_own, end, transition);
        });
    if (job.spec().has_auto_regime()) {
      trials_.emplace(job, epochs_, &*changer_);
    }
  }
  if (job.local != nullptr) {
    local_.emplace(job, prefetcher_.rounds(), epochs_.clocks_total,
                   &parameters_, options_.on_activity);
  }
  if (job.rows != nullptr) {
    rows_.emplace(job, epochs_.clocks_total, &prefetcher_, &parameters_,
                  options_.metrics);
  }
}

absl::Status Trainer::Run() {
  ParameterExchange::LeftOut told;
  const auto send_report = [this, &told] {
    options_.on_progress(meter_.Report(MonotonicNow()));
    const auto left_out = parameters_.left_out();
    if (!job_.is_chief() || options_.on_left_out == nullptr ||
        !left_out.has_value() || *left_out == told) {
      return;
    }
    told = *left_out;
    options_.on_left_out(told);
  };
  PeriodicTask report("progress", kReportPeriod, [&] {
    send_report();
    profiler_.Deliver();
  });
  executor_.UseStatistics(folds_);
  ParameterGatherer* const gatherer = parameters_.gatherer();
  if (gatherer != nullptr) executor_.UseGatherer(gatherer);
  absl::Status status = Train();
  if (absl::IsFailedPrecondition(status) &&
      (IsSpoiltByOthers() || scaler_.spoilt_by_others())) {
    AwaitStop();
  }
  if (late_gradients_ > 0) {
    LogInfo("gradients that came too late were applied at the open clock")
        .Job(job_.assignment.job_id())
        .Field("gradients", late_gradients_);
  }
  if (changer_.has_value()) changer_->Finish();
  executor_.UseStatistics(nullptr);
  if (gatherer != nullptr) executor_.UseGatherer(nullptr);
  report.Stop();
  profiler_.Finish();
  send_report();
  while (profiler_.Deliver()) {
  }
  if (!status.ok() && stop_.load()) return absl::CancelledError("stopped");
  return status;
}

void Trainer::Stop() {
  {
    MutexLock lock(&mu_);
    stop_.store(true);
    stopped_.SignalAll();
  }
  exchange_.Cancel(absl::CancelledError("stopped"));
  if (checkpoints_.has_value()) checkpoints_->Cancel();
}

void Trainer::FinishCheckpoint() {
  if (checkpoints_.has_value()) checkpoints_->Finish();
}

void Trainer::SaveAlone() {
  // The state of a loss scale is that of all ranks. An evaluator may still
  // evaluate an epoch, which an attempt that begins behind it does not.
  if (!checkpoints_.has_value() || scaler_.scale() != 0 ||
      job_.has_evaluator()) {
    return;
  }
  const std::optional<int64_t> clock = parameters_.OwnClock();
  if (!clock.has_value() || *clock == 0) return;
  // An attempt that begins at the end of an epoch does not evaluate it.
  const bool ends_epoch = epochs_.EndOf(*clock - 1) == *clock;
  if (!ends_epoch || ended_ == *clock) checkpoints_->SaveAlone();
}

WorkerProgress Trainer::Totals() const { return meter_.Totals(MonotonicNow()); }

std::function<double(int64_t clock)> Trainer::LearningRates() const {
  const LearningRate rate =
      LearningRateOf(job_.spec().learning_rate(), epochs_.clocks_total);
  return [this, rate](int64_t clock) {
    return rate.At(clock) * job_.regimes.At(clock).learning_rate_factor;
  };
}

std::string Trainer::HistoryCsv() const {
  return history_.Csv(epochs_, LearningRates());
}

std::vector<HistoryPoint> Trainer::History(absl::Time now) const {
  Stopwatch since = history_watch_;  // a copy: this one goes on
  return history_.Points(LearningRates(), now - since.Lap());
}

absl::Status Trainer::Train() {
  history_watch_.Lap();
  const int64_t first = job_.assignment.start_clock();
  SYNCLINE_RETURN_IF_ERROR(Annotate(
      epochs_.CheckStart(first),
      absl::StrCat(job_.task_name(), " of job ", job_.assignment.job_id())));
  if (first == epochs_.clocks_total) {
    if (checkpoints_.has_value()) checkpoints_->EndSteps();
    return ReadLast();
  }
  const int64_t begin =
      leases_ ? FirstLeasedClock(first, job_.rank, epochs_.clocks_total)
              : first;
  if (begin == epochs_.clocks_total) {  // never the chief's
    meter_.SetClock(begin);
    return absl::OkStatus();
  }
  SYNCLINE_RETURN_IF_ERROR(Start(first, begin));
  for (int64_t clock = begin; clock < final_clock();) {
    SYNCLINE_RETURN_IF_ERROR(AtFaultPoint(FaultPoint::kStepBegin));
    FollowLosses(clock);
    SYNCLINE_RETURN_IF_ERROR(BeforeStep(clock));
    SYNCLINE_RETURN_IF_ERROR(Step(clock));
    if (leases_) {
      SYNCLINE_ASSIGN_OR_RETURN(clock, EndLeasedStep(clock));
      continue;
    }
    int64_t next = ClockAfter(clock);
    if (next > clock + 1) {
      SYNCLINE_RETURN_IF_ERROR(LeaveOut(clock, &next));
    }
    // A cut is never behind the open clock, so the chief misses none.
    while (clock < next) SYNCLINE_RETURN_IF_ERROR(AfterStep(++clock));
    ended_ = clock;
  }
  if (early_end_.has_value()) meter_.SetClock(*early_end_);
  if (checkpoints_.has_value()) checkpoints_->EndSteps();
  LogPadding();
  return absl::OkStatus();
}

// One of the two cuts at a time: neither has to wait for the other's end then.
absl::Status Trainer::BeforeStep(int64_t clock) {
  if (!job_.is_chief()) return absl::OkStatus();
  const int64_t next = NextStep(clock);
  if (trials_.has_value()) {
    trials_->BeforeStep(clock, checkpoints_->IsRequested());
  }
  SYNCLINE_RETURN_IF_ERROR(changer_->GiveWay(clock));
  if (changer_->IsOpen()) {
    checkpoints_->PutOff(clock, next);
    return absl::OkStatus();
  }
  // The members that write a checkpoint must not change while it is written. A
  // change that comes too late for the job's clocks keeps no checkpoint from
  // being made, least of all that of the result.
  if (changer_->WantsOtherExchange() && !checkpoints_->IsOpen() &&
      clock + 2 < epochs_.clocks_total) {
    checkpoints_->PutOff(clock, next);
    if (checkpoints_->IsBusy()) return absl::OkStatus();
    return changer_->BeforeStep(clock);
  }
  // The way back from a regime that is tried is not to be late.
  if (changer_->HasOwnToAnnounce() && !checkpoints_->IsOpen() &&
      clock + 2 < epochs_.clocks_total) {
    checkpoints_->PutOff(clock, next);
    return changer_->BeforeStep(clock);
  }
  SYNCLINE_RETURN_IF_ERROR(checkpoints_->BeforeStep(clock, next));
  if (checkpoints_->IsOpen()) return absl::OkStatus();
  return changer_->BeforeStep(clock);
}

absl::Status Trainer::ChangeRegime(int64_t clock) {
  if (changer_.has_value()) {
    if (!changer_->IsOpen() || changer_->clock() != clock) {
      return absl::OkStatus();
    }
    // At the end of an epoch the ranks are let go here first. But where that
    // cut was raised, it may hold a rank that has not come to this one.
    if (ReadsCutAt(clock) && epochs_.EndOf(clock - 1) != clock) {
      return changer_->PutOff(clock);
    }
    SYNCLINE_RETURN_IF_ERROR(changer_->Commit(clock));
    if (!changer_->IsOpen()) return absl::OkStatus();  // it came to nothing
    SYNCLINE_RETURN_IF_ERROR(FollowRegimes(clock));
    changer_->ReportDone();
    return absl::OkStatus();
  }
  if (clock == epochs_.clocks_total || !parameters_.has_regime_news()) {
    return absl::OkStatus();
  }
  return FollowRegimes(clock);
}

absl::Status Trainer::FollowRegimes(int64_t clock) {
  SYNCLINE_ASSIGN_OR_RETURN(const RegimeSchedule regimes,
                            parameters_.FollowRegimes(clock));
  if (regimes == job_.regimes) return absl::OkStatus();  // it came to nothing
  if (options_.on_regimes != nullptr) options_.on_regimes(regimes);
  // Rows that this rank has read may be older than the regime allows.
  if (rows_.has_value()) rows_->Forget();
  return parameters_.Pull(clock);
}

void Trainer::RequestRegime(const RegimeChange& change,
                            const std::string& reason) {
  if (changer_.has_value()) changer_->Request(change, reason);
}

absl::Status Trainer::AfterStep(int64_t clock) {
  SYNCLINE_RETURN_IF_ERROR(ChangeRegime(clock));
  const bool checkpoints =
      checkpoints_.has_value() && checkpoints_->IsAtCut(clock);
  // Ranks get to a cut behind an epoch's end when that has been evaluated; any
  // other cut is let go before, so that an evaluation does not hold it.
  const bool behind =
      checkpoints && ReadsCutAt(clock) && checkpoints_->IsBehind(clock);
  if (checkpoints && !behind) {
    SYNCLINE_RETURN_IF_ERROR(WriteCheckpoint(clock));
  }
  if (ReadsCutAt(clock)) {
    SYNCLINE_RETURN_IF_ERROR(EndEpoch(clock));
  } else if (LacksCutAt(clock)) {
    SYNCLINE_RETURN_IF_ERROR(Announce(clock));
  }
  // After an early end no rank reaches it.
  return behind && !early_end_.has_value() ? WriteCheckpoint(clock)
                                           : absl::OkStatus();
}

absl::Status Trainer::WriteCheckpoint(int64_t clock) {
  SYNCLINE_RETURN_IF_ERROR(checkpoints_->Await(clock));
  SYNCLINE_RETURN_IF_ERROR(scaler_.Settle());
  std::optional<Checkpointer::LossScale> loss_scale;
  if (const auto state = scaler_.StateOfAllRanks(clock); state.has_value()) {
    loss_scale.emplace();
    loss_scale->set_scale(state->scale);
    loss_scale->set_good_steps(state->good_steps);
    loss_scale->set_overflows(state->tolerated);
  }
  return checkpoints_->Write(clock, loss_scale);
}

void Trainer::LogPadding() const {
  if (fed_padding_ == 0) return;
  LogInfo("samples were padded")
      .Job(job_.assignment.job_id())
      .Field("values", fed_values_)
      .Field("padding", fed_padding_)
      .Field("padding_fraction",
             static_cast<double>(fed_padding_) /
                 static_cast<double>(fed_values_ + fed_padding_));
}

absl::Status Trainer::Start(int64_t clock, int64_t first_step) {
  if (job_.is_chief()) {
    FillInitialValues();
    // No worker can push before the shards are initialised, so no worker is
    // past the first cut when it is announced.
    // Where checkpoints are evaluated, only the last one is read: for export.
    SYNCLINE_RETURN_IF_ERROR(Announce(
        EvaluatesCheckpoints(job_.spec()) ? epochs_.clocks_total - 1 : clock));
    SYNCLINE_RETURN_IF_ERROR(parameters_.Init(epochs_.clocks_total));
  }
  SYNCLINE_RETURN_IF_ERROR(parameters_.Pull(first_step));
  if (leases_) {
    prefetcher_.AddStep(first_step);
    return TakeLease(first_step);
  }
  return absl::OkStatus();
}

absl::Status Trainer::ReadLast() {
  const int64_t clock = epochs_.clocks_total;
  if (!job_.is_chief()) return parameters_.Leave(clock);
  const auto read = [&]() -> absl::Status {
    SYNCLINE_RETURN_IF_ERROR(Announce(clock - 1));
    SYNCLINE_RETURN_IF_ERROR(parameters_.Init(clock));
    SYNCLINE_RETURN_IF_ERROR(parameters_.PullCut(cut_->id, clock));
    return parameters_.Leave(clock);
  };
  SYNCLINE_RETURN_IF_ERROR(Annotate(
      read(), absl::StrCat(job_.task_name(), " of job ",
                           job_.assignment.job_id(), ": start_clock is ", clock,
                           ", the last: its values, which are to be "
                           "exported, cannot be read")));
  SYNCLINE_RETURN_IF_ERROR(CheckFinalValues());
  // The attempt before may have ended without.
  return Evaluate(*cut_);
}

absl::Status Trainer::Announce(int64_t clock) {
  SYNCLINE_ASSIGN_OR_RETURN(cut_,
                            AnnounceCut(job_, epochs_, clock, &parameters_));
  if (cut_.has_value()) announced_ = cut_->clock;
  // The evaluator reads this one and announces the others; the chief reads the
  // last.
  if (job_.has_evaluator()) {
    cut_ = EpochCut{CutIdOf(job_, epochs_.clocks_total), epochs_.clocks_total};
  }
  return absl::OkStatus();
}

absl::Status Trainer::Step(int64_t clock) {
  profiler_.BeginStep(clock);
  Stopwatch watch;
  const int64_t next = NextStep(clock);
  const bool is_last = next == epochs_.clocks_total;
  // The chief reads the state at a cut instead of the next step's values.
  OpenStep step = {.clock = clock,
                   .next_clock = next,
                   .is_last = is_last,
                   .pulls = !is_last && !WaitsAtCutUpTo(clock, next)};
  if (local_.has_value()) {
    SYNCLINE_RETURN_IF_ERROR(TrainRound(&step));
  } else if (job_.late != nullptr && job_.late->is_kept()) {
    SYNCLINE_RETURN_IF_ERROR(PushLate(&step));
  } else {
    SYNCLINE_RETURN_IF_ERROR(Begin(&step, &prefetcher_));
    SYNCLINE_RETURN_IF_ERROR(ComputeGradient(&step));
  }
  SendGradient(&step);
  SYNCLINE_RETURN_IF_ERROR(AwaitValues(&step));
  made_ = clock;
  // With leased data the clocks before the next one are closed, too.
  meter_.AddStep(next - 1, step.samples, step.loss_sum, step.times);
  history_.Add(clock, step.samples, step.loss_sum, scaler_.scale(),
               history_watch_.Lap());
  options_.metrics->OnStep(step.samples, step.times);
  profiler_.EndStep(step.samples);
  if (trials_.has_value()) trials_->OnStep(clock, watch.Lap(), LossOf(step));
  return absl::OkStatus();
}

std::optional<double> Trainer::LossOf(const OpenStep& step) const {
  if (step.samples > 0) {
    return step.loss_sum / static_cast<double>(step.samples);
  }
  if (step.batch == nullptr || step.batch->size == 0) return std::nullopt;
  return std::numeric_limits<double>::quiet_NaN();
}

absl::Status Trainer::Begin(OpenStep* step, Prefetcher* batches) {
  SYNCLINE_ASSIGN_OR_RETURN(step->batch, NextBatch(batches));
  step->times.data = step->watch.Lap();
  if (rows_.has_value()) {
    SYNCLINE_RETURN_IF_ERROR(
        rows_->Ready(step->clock, step->next_clock, *step->batch));
  }
  step->times.wait = step->watch.Lap();
  profiler_.Record({{StepProfile::DATA, step->times.data}});
  if (rows_.has_value()) {
    profiler_.Record({{StepProfile::ROWS, step->times.wait}});
  }
  step->samples = static_cast<uint64_t>(step->batch->size);
  parameters_.BeginStep({.clock = step->clock,
                         .sample_count = step->samples,
                         .next_clock = leases_ ? step->next_clock : 0,
                         .finished = step->is_last,
                         .pull = step->pulls,
                         .for_rank = step->for_rank,
                         .rows = rows_.has_value()
                                     ? rows_->current()
                                     : absl::Span<RowBatch* const>()});
  if (rows_.has_value() && step->pulls) {
    const StepRecorder::Interval interval(profiler_.recorder(),
                                          StepProfile::ROWS);
    rows_->PullEarly();
  }
  return absl::OkStatus();
}

absl::Status Trainer::ComputeGradient(OpenStep* step) {
  const Batch& batch = *step->batch;
  StepRecorder* const recorder = passes_.BeginStep(profiler_.recorder());
  if (job_.late != nullptr) job_.late->BeginStep();
  SYNCLINE_RETURN_IF_ERROR(scaler_.BeginStep(step->clock));
  if (folds_ != nullptr) {
    folds_->BeginStep(step->clock, recorder);
  }
  if (batch.size > 0) {
    CountFed(batch);
    absl::StatusOr<Executor::StepResult> computed =
        Compute(step->clock, batch, &step->pushing);
    if (computed.ok()) {
      step->loss_sum = computed->loss_sum;
      step->overflow = std::move(computed->overflow);
      if (IsSpoiltByOthers()) WarnOfOthers(step->clock);
    } else if (ShouldSkipStep(computed.status())) {
      parameters_.AbandonStep(/*own_values=*/!IsSpoiltByOthers());
    } else {
      return computed.status();
    }
  }
  SYNCLINE_RETURN_IF_ERROR(LeaveFolds(batch));
  step->times.compute = step->watch.Lap() - step->pushing;
  if (folds_ != nullptr) {
    step->times.compute -= folds_->waited();
    step->times.wait += folds_->waited();
  }
  passes_.EndStep(step->times.compute, /*updates=*/absl::ZeroDuration());
  return absl::OkStatus();
}

absl::Status Trainer::TrainRound(OpenStep* step) {
  const auto next_batch = [&]() -> absl::StatusOr<const Batch*> {
    Stopwatch watch;
    SYNCLINE_ASSIGN_OR_RETURN(const Batch* const batch,
                              NextBatch(&prefetcher_));
    const absl::Duration waited = watch.Lap();
    profiler_.Record({{StepProfile::DATA, waited}});
    step->times.data += waited;
    if (batch->size > 0) CountFed(*batch);
    return batch;
  };
  passes_.BeginStep(profiler_.recorder());
  SYNCLINE_ASSIGN_OR_RETURN(const LocalRounds::Round round,
                            local_->Run(step->clock, next_batch));
  step->samples = round.samples;
  step->loss_sum = round.loss_sum;
  step->times.compute = step->watch.Lap() - step->times.data;
  passes_.EndStep(step->times.compute - round.updates, round.updates);
  parameters_.BeginStep({.clock = step->clock,
                         .sample_count = step->samples,
                         .finished = step->is_last,
                         .pull = step->pulls});
  if (step->samples == 0) return absl::OkStatus();
  for (uint32_t tensor = 0; tensor < job_.local->tensor_count(); ++tensor) {
    parameters_.OnGradientReady(tensor);
  }
  return absl::OkStatus();
}

void Trainer::CountFed(const Batch& batch) {
  fed_values_ += batch.value_count;
  fed_padding_ += batch.padding_count;
  options_.metrics->OnFed(batch.value_count, batch.padding_count);
}

void Trainer::SendGradient(OpenStep* step) {
  parameters_.EndBackward(rows_.has_value() && step->pulls
                              ? rows_->Next()
                              : absl::Span<RowBatch* const>());
  scaler_.OnGradient(step->clock, step->samples, step->overflow);
  if (parameters_.step_abandoned()) {
    step->samples = 0;
    step->loss_sum = 0;
  }
  if (rows_.has_value()) rows_->OnGradient(step->clock, step->samples);
  step->times.push = step->watch.Lap();
  profiler_.Record({{StepProfile::PUSH, step->times.push}});
  step->times.push += step->pushing;
}

absl::Status Trainer::AwaitValues(OpenStep* step) {
  SYNCLINE_RETURN_IF_ERROR(parameters_.Wait());
  const ParameterExchange::WaitTimes waited = parameters_.wait_times();
  profiler_.Record({{StepProfile::PUSH, waited.push},
                    {StepProfile::WAIT, waited.wait},
                    {StepProfile::PULL, waited.pull}});
  if (rows_.has_value()) rows_->OnPulled();
  if (parameters_.was_left_behind(step->clock)) {
    if (job_.late != nullptr && !step->is_late && step->samples > 0) {
      job_.late->Keep(step->clock, step->samples, step->loss_sum);
    }
    step->samples = 0;
    step->loss_sum = 0;
  } else if (step->is_late && step->samples > 0) {
    ++late_gradients_;
    options_.metrics->OnLateGradient();
  }
  step->times.push += waited.push;
  step->times.wait += waited.wait;
  step->times.pull = waited.pull;
  return absl::OkStatus();
}

absl::StatusOr<Executor::StepResult> Trainer::Compute(int64_t clock,
                                                      const Batch& batch,
                                                      absl::Duration* pushing) {
  const auto on_gradient = [&](int tensor) {
    Stopwatch watch;
    parameters_.OnGradientReady(static_cast<uint32_t>(tensor));
    const absl::Duration pushed = watch.Lap();
    profiler_.Record({{StepProfile::PUSH, pushed}});
    *pushing += pushed;
  };
  return executor_.TrainStep(batch, clock, on_gradient);
}

absl::Status Trainer::LeaveFolds(const Batch& batch) {
  if (folds_ == nullptr) return absl::OkStatus();
  // Others may have as many parts as a full batch, which this one has not.
  const bool has_all_parts = batch.size >= SharesOf(job_.spec()).parts;
  if (has_all_parts && !parameters_.step_abandoned()) return absl::OkStatus();
  return folds_->Leave();
}

bool Trainer::ShouldSkipStep(const absl::Status& loss) {
  // A call may fail with the same code.
  const bool folds_failed = folds_ != nullptr && !folds_->status().ok();
  if (!absl::IsFailedPrecondition(loss) || folds_failed ||
      NonFiniteOf(job_.spec().non_finite()) == OnNonFinite::kFailJob) {
    return false;
  }
  if (!MayWarn()) return true;
  LogWarning("a step has no gradient")
      .Job(job_.assignment.job_id())
      .Status(loss);
  return true;
}

void Trainer::WarnOfOthers(int64_t clock) {
  if (!MayWarn()) return;
  LogWarning("another worker's gradient is not finite, and so is none")
      .Job(job_.assignment.job_id())
      .Field("clock", clock);
}

bool Trainer::MayWarn() {
  const absl::Time now = MonotonicNow();
  if (now < next_warning_) return false;
  next_warning_ = now + kWarningPeriod;
  return true;
}

void Trainer::AwaitStop() {
  const absl::Time deadline = MonotonicNow() + kRootCauseGrace;
  MutexLock lock(&mu_);
  while (!stop_.load() && MonotonicNow() < deadline) {
    stopped_.WaitUntil(&mu_, deadline);
  }
}

absl::StatusOr<const Batch*> Trainer::NextBatch(Prefetcher* batches) {
  while (!stop_.load()) {
    absl::StatusOr<const Batch*> batch =
        batches->Next(MonotonicNow() + kStopPeriod);
    if (!absl::IsDeadlineExceeded(batch.status())) return batch;
  }
  return absl::CancelledError("stopped");
}

bool Trainer::ReadsCutUpTo(int64_t clock, int64_t next) const {
  return cut_.has_value() && clock < cut_->clock && cut_->clock <= next;
}

bool Trainer::LacksCutAt(int64_t clock) const {
  return job_.is_chief() && !cut_.has_value() &&
         epochs_.EndOf(clock - 1) == clock;
}

absl::Status Trainer::EndEpoch(int64_t clock) {
  const EpochCut cut = *cut_;
  if (leases_ && job_.has_evaluator() && announced_ != clock) {
    // This rank may have made its last step epochs before the last one, whose
    // cut the evaluator announces later: that is a repeat then.
    SYNCLINE_RETURN_IF_ERROR(
        AnnounceCut(job_, epochs_, clock - 1, &parameters_).status());
  }
  SYNCLINE_RETURN_IF_ERROR(parameters_.PullCut(cut.id, clock));
  if (clock == epochs_.clocks_total) {
    SYNCLINE_RETURN_IF_ERROR(CheckFinalValues());
  }
  // The evaluator may still have to read what this has read for the export.
  if (job_.has_evaluator()) return absl::OkStatus();
  // The next cut before the end of this one, or a worker could run past it.
  const bool is_last = clock == epochs_.clocks_total;
  if (!is_last && job_.spec().has_stop()) return EndEpochOrJob(cut);
  if (!is_last) SYNCLINE_RETURN_IF_ERROR(Announce(clock));
  if (rows_.has_value()) {
    // Rows are read batch by batch while the cut is held.
    SYNCLINE_RETURN_IF_ERROR(Evaluate(cut));
    return is_last ? absl::OkStatus() : parameters_.EndCut(cut.id, clock);
  }
  SYNCLINE_RETURN_IF_ERROR(parameters_.EndCut(cut.id, clock));
  return Evaluate(cut);
}

absl::Status Trainer::EndEpochOrJob(const EpochCut& cut) {
  SYNCLINE_RETURN_IF_ERROR(Evaluate(cut));
  if (early_end().empty()) {
    SYNCLINE_RETURN_IF_ERROR(Announce(cut.clock));
    return parameters_.EndCut(cut.id, cut.clock);
  }
  LogInfo("the job ends early")
      .Job(job_.assignment.job_id())
      .Field("clock", cut.clock)
      .Field("why", early_end());
  early_end_ = cut.clock;
  return CheckFinalValues();
}

std::string Trainer::early_end() const {
  return evaluator_.has_value() ? evaluator_->stop_reason() : "";
}

absl::Status Trainer::CheckFinalValues() {
  for (size_t i = 0; i < job_.training.parameters.size(); ++i) {
    const absl::Span<const float> values =
        executor_.parameter(static_cast<int>(i));
    if (AllFinite(values.data(), values.size())) continue;
    const size_t at = FirstNonFinite(values.data(), values.size());
    const absl::Status status = absl::FailedPreconditionError(absl::StrCat(
        "after the last clock, ", final_clock() - 1, ", element ", at, " of '",
        job_.training.parameters[i].name, "' is ", values[at],
        ", though no loss and no gradient was: its last update has "
        "overflowed; lower learning_rate, or what decays it"));
    if (NonFiniteOf(job_.spec().non_finite()) == OnNonFinite::kFailJob) {
      return status;
    }
    LogWarning("the final values are not finite")
        .Job(job_.assignment.job_id())
        .Status(status);
    return absl::OkStatus();
  }
  return absl::OkStatus();
}

absl::Status Trainer::Evaluate(const EpochCut& cut) {
  // An evaluation computes in the memory of gradients.
  if (job_.late != nullptr) job_.late->Forget();
  return evaluator_.has_value() ? evaluator_->Run(cut, stop_)
                                : absl::OkStatus();
}

TableReader Trainer::ReaderOf(uint32_t table) {
  const int64_t clock = final_clock();
  return {.scan =
              [this, table, clock](TableReader::Sink sink) {
                return parameters_.ScanTable(table,
                                             job_.training.tables[table].dim,
                                             cut_->id, clock, sink);
              },
          .keys_max = job_.rows->lookup_max(table),
          .read =
              [this, table](absl::Span<const int64_t> keys, float* values) {
                return ReadTable(table, keys, values);
              }};
}

absl::Status Trainer::ReadTable(uint32_t table, absl::Span<const int64_t> keys,
                                float* values) {
  const absl::Span<RowBatch* const> rows = job_.rows->lookup();
  Collect(Batch(), rows);  // nothing of the other tables
  Batch batch;
  batch.size = static_cast<int64_t>(keys.size());
  batch.int_feeds.resize(rows.size());
  batch.int_feeds[table].assign(keys.begin(), keys.end());
  rows[table]->Collect(batch);
  SYNCLINE_RETURN_IF_ERROR(parameters_.PullRows(final_clock(), cut_->id, rows));
  const size_t dim = static_cast<size_t>(rows[table]->dim());
  for (size_t i = 0; i < keys.size(); ++i) {
    const auto row = static_cast<size_t>(rows[table]->positions(0)[i]) - 1;
    std::copy_n(rows[table]->value(row), dim, values + i * dim);
  }
  return absl::OkStatus();
}

absl::Status Trainer::EndTables() {
  if (job_.has_evaluator()) return absl::OkStatus();  // it may still read
  // After an early end the other ranks are stopped where they are held.
  if (early_end_.has_value()) return absl::OkStatus();
  return parameters_.EndCut(cut_->id, epochs_.clocks_total);
}

void Trainer::FillInitialValues() {
  const auto& rules = job_.spec().model().initialize();
  const auto& parameters = job_.training.parameters;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].rule < 0) continue;
    const InitializerRule& rule = rules[parameters[i].rule];
    const FansOfUse use = FansOf(job_.model->graph(), parameters[i].value);
    if (LooksAtFans(rule.scheme()) && !use.doubt.empty()) {
      LogWarning("the scale of initial values is in doubt")
          .Job(job_.assignment.job_id())
          .Field("initializer", parameters[i].name)
          .Field("scheme", InitializerRule::Scheme_Name(rule.scheme()))
          .Field("fans", use.doubt);
    }
    InitializeParameter(rule, use.fans, job_.spec().training().seed(),
                        parameters[i].name,
                        executor_.parameter(static_cast<int>(i)));
  }
}

}  // namespace syncline::worker
