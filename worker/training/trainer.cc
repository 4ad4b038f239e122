#include "worker/training/trainer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
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

Prefetcher::Options PrefetcherOptions(const PreparedJob& job) {
  const JobSpec& spec = job.spec();
  Prefetcher::Options options;
  options.plan.sample_count = job.train->size();
  options.plan.batch_size = spec.training().batch_size();
  options.plan.workers = static_cast<uint32_t>(job.assignment.workers_size());
  options.plan.rank = job.rank;
  options.plan.shuffle = spec.data().shuffle();
  options.plan.seed = spec.training().seed();
  options.plan.buckets = job.train->buckets();
  if (spec.data().train().has_criteo()) {
    options.plan.window_samples = spec.data().train().criteo().window_samples();
  }
  const BatchPlan plan(options.plan);
  options.clocks =
      Epochs::Of(spec.training(), plan.steps_per_epoch()).clocks_total;
  // Train refuses a clock that the job does not have.
  options.first_clock =
      std::clamp<int64_t>(job.assignment.start_clock(), 0, options.clocks);
  return options;
}

}  // namespace

Epochs EpochsOf(const PreparedJob& job) {
  return Epochs::Of(job.spec().training(),
                    BatchPlan(PrefetcherOptions(job).plan).steps_per_epoch());
}

Trainer::Trainer(const PreparedJob& job, JobExchange exchange, Options options)
    : job_(job),
      options_(std::move(options)),
      executor_(*job.executor),
      prefetcher_(job.train.get(), PrefetcherOptions(job)),
      epochs_(Epochs::Of(job.spec().training(), prefetcher_.steps_per_epoch())),
      meter_(job.rank, epochs_, job.assignment.start_clock(), MonotonicNow()),
      profiler_(job, &stop_, options_.on_profile),
      exchange_(std::move(exchange)),
      scaler_(job, exchange_.parameters.get(), options_.metrics, &meter_) {
  if (job.test != nullptr) {
    evaluator_.emplace(job, epochs_, &parameters_, options_.metrics,
                       options_.on_evaluation, options_.on_activity);
  }
  if (job.rows != nullptr) {
    rows_.emplace(job, epochs_.clocks_total, &prefetcher_, &parameters_,
                  options_.metrics);
  }
}

absl::Status Trainer::Run() {
  const auto send_report = [this] {
    options_.on_progress(meter_.Report(MonotonicNow()));
  };
  PeriodicTask report("progress", kReportPeriod, [&] {
    send_report();
    profiler_.Deliver();
  });
  executor_.UseStatistics(folds_);
  absl::Status status = Train();
  if (absl::IsFailedPrecondition(status) &&
      (IsSpoiltByOthers() || scaler_.spoilt_by_others())) {
    AwaitStop();
  }
  executor_.UseStatistics(nullptr);
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
}

WorkerProgress Trainer::Totals() const { return meter_.Totals(MonotonicNow()); }

std::string Trainer::HistoryCsv() const {
  const LearningRate rate =
      LearningRateOf(job_.spec().learning_rate(), epochs_.clocks_total);
  return history_.Csv(epochs_, [&](int64_t clock) { return rate.At(clock); });
}

absl::Status Trainer::Train() {
  const int64_t first = job_.assignment.start_clock();
  SYNCLINE_RETURN_IF_ERROR(Annotate(
      epochs_.CheckStart(first),
      absl::StrCat(job_.task_name(), " of job ", job_.assignment.job_id())));
  if (first == epochs_.clocks_total) return ReadLast();
  SYNCLINE_RETURN_IF_ERROR(Start(first));
  for (int64_t clock = first; clock < epochs_.clocks_total; ++clock) {
    SYNCLINE_RETURN_IF_ERROR(Step(clock));
    if (ReadsCutAt(clock + 1)) {
      SYNCLINE_RETURN_IF_ERROR(EndEpoch(clock + 1));
    } else if (LacksCutAt(clock + 1)) {
      SYNCLINE_RETURN_IF_ERROR(Announce(clock + 1));
    }
  }
  LogPadding();
  return absl::OkStatus();
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

absl::Status Trainer::Start(int64_t clock) {
  if (job_.is_chief()) {
    FillInitialValues();
    // No worker can push before the shards are initialised, so no worker is
    // past the first cut when it is announced.
    SYNCLINE_RETURN_IF_ERROR(Announce(clock));
    SYNCLINE_RETURN_IF_ERROR(parameters_.Init(epochs_.clocks_total));
  }
  return parameters_.Pull(clock);
}

absl::Status Trainer::ReadLast() {
  if (!job_.is_chief()) return absl::OkStatus();
  const int64_t clock = epochs_.clocks_total;
  const auto read = [&]() -> absl::Status {
    SYNCLINE_RETURN_IF_ERROR(Announce(clock - 1));
    SYNCLINE_RETURN_IF_ERROR(parameters_.Init(clock));
    return parameters_.PullCut(cut_->id, clock);
  };
  return Annotate(
      read(), absl::StrCat(job_.task_name(), " of job ",
                           job_.assignment.job_id(), ": start_clock is ", clock,
                           ", the last: its values, which are to be "
                           "exported, cannot be read"));
}

absl::Status Trainer::Announce(int64_t clock) {
  SYNCLINE_ASSIGN_OR_RETURN(cut_,
                            AnnounceCut(job_, epochs_, clock, &parameters_));
  // The evaluator reads this one and announces the others; the chief reads the
  // last.
  if (job_.has_evaluator()) {
    cut_ = EpochCut{CutIdOf(job_, epochs_.clocks_total), epochs_.clocks_total};
  }
  return absl::OkStatus();
}

absl::Status Trainer::Step(int64_t clock) {
  profiler_.BeginStep(clock);
  const bool is_last = clock + 1 == epochs_.clocks_total;
  // The chief reads the state at a cut instead of the next step's values.
  OpenStep step = {.clock = clock,
                   .is_last = is_last,
                   .pulls = !is_last && !ReadsCutAt(clock + 1)};
  SYNCLINE_RETURN_IF_ERROR(Begin(&step));
  SYNCLINE_RETURN_IF_ERROR(ComputeGradient(&step));
  SendGradient(&step);
  SYNCLINE_RETURN_IF_ERROR(AwaitValues(&step));
  meter_.AddStep(clock, step.samples, step.loss_sum, step.times);
  history_.Add(clock, step.samples, step.loss_sum, scaler_.scale());
  options_.metrics->OnStep(step.samples, step.times);
  profiler_.EndStep(step.samples);
  return absl::OkStatus();
}

absl::Status Trainer::Begin(OpenStep* step) {
  SYNCLINE_ASSIGN_OR_RETURN(step->batch, NextBatch());
  step->times.data = step->watch.Lap();
  if (rows_.has_value()) {
    SYNCLINE_RETURN_IF_ERROR(rows_->Ready(step->clock, *step->batch));
  }
  step->times.wait = step->watch.Lap();
  profiler_.Record({{StepProfile::DATA, step->times.data}});
  if (rows_.has_value()) {
    profiler_.Record({{StepProfile::ROWS, step->times.wait}});
  }
  step->samples = static_cast<uint64_t>(step->batch->size);
  parameters_.BeginStep({.clock = step->clock,
                         .sample_count = step->samples,
                         .finished = step->is_last,
                         .pull = step->pulls,
                         .rows = rows_.has_value()
                                     ? rows_->current()
                                     : absl::Span<RowBatch* const>()});
  if (rows_.has_value() && step->pulls) {
    const StepRecorder::Interval interval(profiler_.recorder(),
                                          StepProfile::ROWS);
    rows_->PullEarly(step->clock);
  }
  return absl::OkStatus();
}

absl::Status Trainer::ComputeGradient(OpenStep* step) {
  const Batch& batch = *step->batch;
  SYNCLINE_RETURN_IF_ERROR(scaler_.BeginStep(step->clock));
  if (folds_ != nullptr) {
    folds_->BeginStep(step->clock, profiler_.recorder());
  }
  if (batch.size > 0) {
    fed_values_ += batch.value_count;
    fed_padding_ += batch.padding_count;
    options_.metrics->OnFed(batch.value_count, batch.padding_count);
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
  return absl::OkStatus();
}

void Trainer::SendGradient(OpenStep* step) {
  parameters_.EndBackward(rows_.has_value() && step->pulls
                              ? rows_->Next(step->clock)
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
  if (rows_.has_value()) rows_->OnPulled(step->clock);
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
  const bool has_all_parts =
      batch.size >=
      std::max<int64_t>(1, job_.spec().training().micro_batches());
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

absl::StatusOr<const Batch*> Trainer::NextBatch() {
  while (!stop_.load()) {
    absl::StatusOr<const Batch*> batch =
        prefetcher_.Next(MonotonicNow() + kStopPeriod);
    if (!absl::IsDeadlineExceeded(batch.status())) return batch;
  }
  return absl::CancelledError("stopped");
}

bool Trainer::ReadsCutAt(int64_t clock) const {
  return cut_.has_value() && cut_->clock == clock;
}

bool Trainer::LacksCutAt(int64_t clock) const {
  return job_.is_chief() && !cut_.has_value() &&
         epochs_.EndOf(clock - 1) == clock;
}

absl::Status Trainer::EndEpoch(int64_t clock) {
  const EpochCut cut = *cut_;
  SYNCLINE_RETURN_IF_ERROR(parameters_.PullCut(cut.id, clock));
  if (clock == epochs_.clocks_total) {
    SYNCLINE_RETURN_IF_ERROR(CheckFinalValues());
  }
  // The evaluator may still have to read what this has read for the export.
  if (job_.has_evaluator()) return absl::OkStatus();
  // The next cut before the end of this one, or a worker could run past it.
  const bool is_last = clock == epochs_.clocks_total;
  if (!is_last) SYNCLINE_RETURN_IF_ERROR(Announce(clock));
  if (rows_.has_value()) {
    // Rows are read batch by batch while the cut is held.
    SYNCLINE_RETURN_IF_ERROR(Evaluate(cut));
    return is_last ? absl::OkStatus() : parameters_.EndCut(cut.id, clock);
  }
  SYNCLINE_RETURN_IF_ERROR(parameters_.EndCut(cut.id, clock));
  return Evaluate(cut);
}

absl::Status Trainer::CheckFinalValues() {
  for (size_t i = 0; i < job_.training.parameters.size(); ++i) {
    const absl::Span<const float> values =
        executor_.parameter(static_cast<int>(i));
    if (AllFinite(values.data(), values.size())) continue;
    const size_t at = FirstNonFinite(values.data(), values.size());
    const absl::Status status = absl::FailedPreconditionError(absl::StrCat(
        "after the last clock, ", epochs_.clocks_total - 1, ", element ", at,
        " of '", job_.training.parameters[i].name, "' is ", values[at],
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
  return evaluator_.has_value() ? evaluator_->Run(cut, stop_)
                                : absl::OkStatus();
}

TableReader Trainer::ReaderOf(uint32_t table) {
  const int64_t clock = epochs_.clocks_total;
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
  SYNCLINE_RETURN_IF_ERROR(
      parameters_.PullRows(epochs_.clocks_total, cut_->id, rows));
  const size_t dim = static_cast<size_t>(rows[table]->dim());
  for (size_t i = 0; i < keys.size(); ++i) {
    const auto row = static_cast<size_t>(rows[table]->positions(0)[i]) - 1;
    std::copy_n(rows[table]->value(row), dim, values + i * dim);
  }
  return absl::OkStatus();
}

absl::Status Trainer::EndTables() {
  if (job_.has_evaluator()) return absl::OkStatus();  // it may still read
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
