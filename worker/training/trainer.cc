#include "worker/training/trainer.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/job/profile_limits.h"
#include "common/system/log.h"
#include "common/system/periodic_task.h"
#include "worker/compute/initializers.h"
#include "worker/job/job_client.h"

namespace syncline::worker {
namespace {

constexpr absl::Duration kReportPeriod = absl::Milliseconds(500);
// How often a wait for data looks at the stop flag.
constexpr absl::Duration kStopPeriod = absl::Milliseconds(200);
// A worker whose loss is never finite need not say so in every step.
constexpr absl::Duration kWarningPeriod = absl::Seconds(10);
// How long a worker whose step another one has spoilt leaves the word to it.
constexpr absl::Duration kRootCauseGrace = absl::Seconds(5);

// The time since the previous lap.
class Stopwatch {
 public:
  absl::Duration Lap() {
    const absl::Time now = MonotonicNow();
    return now - std::exchange(last_, now);
  }

 private:
  absl::Time last_ = MonotonicNow();
};

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
  return options;
}

// Null: each batch has its own statistics.
std::unique_ptr<StatisticsClient> MakeStatistics(
    const PreparedJob& job, const Trainer::Options& trainer) {
  if (!FoldsStatistics(job.spec())) return nullptr;
  StatisticsClient::Options options;
  options.job_id = job.assignment.job_id();
  options.caller.set_job_id(options.job_id);
  options.caller.set_rank(job.rank);
  options.caller.set_incarnation(trainer.incarnation);
  options.caller.set_routing_version(job.assignment.routing_version());
  options.ps = PeerOf(job.assignment.ps(0));
  options.step_timeout =
      absl::Seconds(job.spec().limits().step_timeout_seconds());
  options.retries = trainer.metrics->retries();
  options.held_back = trainer.metrics->held_back();
  options.on_unreachable = trainer.on_unreachable;
  return std::make_unique<StatisticsClient>(options);
}

}  // namespace

Epochs EpochsOf(const PreparedJob& job) {
  return Epochs::Of(job.spec().training(),
                    BatchPlan(PrefetcherOptions(job).plan).steps_per_epoch());
}

Trainer::Trainer(const PreparedJob& job, Options options)
    : job_(job),
      options_(std::move(options)),
      executor_(*job.executor),
      prefetcher_(job.train.get(), PrefetcherOptions(job)),
      epochs_(Epochs::Of(job.spec().training(), prefetcher_.steps_per_epoch())),
      meter_(job.rank, epochs_, MonotonicNow()),
      statistics_(MakeStatistics(job, options_)),
      client_(ClientOptionsOf(job, {.incarnation = options_.incarnation,
                                    .shared_memory = options_.shared_memory,
                                    .metrics = options_.metrics,
                                    .on_unreachable = options_.on_unreachable}),
              *job.map, ClientTensorsOf(job)) {
  if (job.test != nullptr) {
    evaluator_.emplace(job, epochs_, &client_, options_.metrics,
                       options_.on_evaluation, options_.on_activity);
  }
  if (!HasTables()) return;
  for (size_t t = 0; t < job.rows->current().size(); ++t) {
    const auto options = TrainingRowCache::OptionsOf(
        job.spec(), static_cast<int>(t),
        static_cast<size_t>(job.rows->current()[t]->dim()),
        epochs_.clocks_total);
    kept_rows_.push_back(options.has_value()
                             ? std::make_unique<TrainingRowCache>(*options)
                             : nullptr);
  }
}

absl::Status Trainer::Run() {
  const auto send_report = [this] {
    options_.on_progress(meter_.Report(MonotonicNow()));
  };
  PeriodicTask report("progress", kReportPeriod, [&] {
    send_report();
    DeliverProfile();
  });
  executor_.UseStatistics(statistics_.get());
  absl::Status status = Train();
  if (absl::IsFailedPrecondition(status) && IsSpoiltByOthers()) AwaitStop();
  executor_.UseStatistics(nullptr);
  report.Stop();
  FinishProfile();
  send_report();
  while (DeliverProfile()) {
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
  client_.Cancel(absl::CancelledError("stopped"));
  if (statistics_ != nullptr) {
    statistics_->Cancel(absl::CancelledError("stopped"));
  }
}

void Trainer::RequestProfile(const ProfileSteps& wish) {
  MutexLock lock(&mu_);
  // The scheduler repeats it after a broken stream, until it is stored.
  if (HasProfile(wish.artifact())) return;
  if (wishes_.size() == kProfilesPerWorkerMax) {
    LogWarning("too many profiles are wanted")
        .Job(wish.job_id())
        .Field("dropped", wish.artifact());
    return;
  }
  wishes_.push_back(wish);
  profile_wanted_.store(true);
}

bool Trainer::HasProfile(const std::string& artifact) const {
  return delivering_ == artifact ||
         absl::c_any_of(wishes_,
                        [&](const ProfileSteps& wish) {
                          return wish.artifact() == artifact;
                        }) ||
         absl::c_any_of(profiles_, [&](const auto& recorded) {
           return recorded.first == artifact;
         });
}

void Trainer::BeginRecording(int64_t clock) {
  if (!recorder_.has_value() && profile_wanted_.load()) {
    MutexLock lock(&mu_);
    recorder_.emplace(wishes_.front().steps());
    executor_.UseRecorder(&*recorder_);
  }
  if (recorder_.has_value()) recorder_->BeginStep(clock);
}

void Trainer::Record(std::initializer_list<StepRecorder::Timed> sequence) {
  if (recorder_.has_value()) recorder_->AddLast(sequence);
}

void Trainer::EndRecording(uint64_t samples) {
  if (!recorder_.has_value()) return;
  recorder_->EndStep(samples);
  if (recorder_->done()) FinishProfile();
}

void Trainer::FinishProfile() {
  if (!recorder_.has_value()) return;
  executor_.UseRecorder(nullptr);
  StepProfile profile = recorder_->profile();
  recorder_.reset();
  profile.set_job_id(job_.assignment.job_id());
  profile.set_task(job_.task_name());
  profile.set_rank(job_.rank);
  profile.set_threads(static_cast<uint32_t>(job_.threads));
  MutexLock lock(&mu_);
  if (profile.steps_size() > 0) {
    profiles_.emplace_back(wishes_.front().artifact(), std::move(profile));
  }
  wishes_.pop_front();
  profile_wanted_.store(!wishes_.empty());
}

bool Trainer::DeliverProfile() {
  std::pair<std::string, StepProfile> oldest;
  {
    MutexLock lock(&mu_);
    if (stop_.load() || profiles_.empty()) return false;
    oldest = std::move(profiles_.front());
    profiles_.pop_front();
    delivering_ = oldest.first;
  }
  options_.on_profile(oldest.first, oldest.second);
  MutexLock lock(&mu_);
  delivering_.clear();
  return true;
}

WorkerProgress Trainer::Totals() const { return meter_.Totals(MonotonicNow()); }

std::string Trainer::HistoryCsv() const {
  const LearningRate rate =
      LearningRateOf(job_.spec().learning_rate(), epochs_.clocks_total);
  return history_.Csv(epochs_, [&](int64_t clock) { return rate.At(clock); });
}

absl::Status Trainer::Train() {
  SYNCLINE_RETURN_IF_ERROR(Start());
  for (int64_t clock = 0; clock < epochs_.clocks_total; ++clock) {
    SYNCLINE_RETURN_IF_ERROR(Step(clock));
    if (ReadsCutAt(clock + 1)) {
      SYNCLINE_RETURN_IF_ERROR(EndEpoch(clock + 1));
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

absl::Status Trainer::Start() {
  if (job_.is_chief()) {
    FillInitialValues();
    // Nobody can push before the shards are initialised, so nobody can be past
    // the first cut when it is announced.
    SYNCLINE_RETURN_IF_ERROR(AnnounceCut(job_, epochs_.EndOf(0), &client_));
    SYNCLINE_RETURN_IF_ERROR(client_.Init(epochs_.clocks_total));
  }
  return client_.Pull(0);
}

absl::Status Trainer::Step(int64_t clock) {
  ProgressMeter::StepTimes times;
  BeginRecording(clock);
  Stopwatch watch;
  SYNCLINE_ASSIGN_OR_RETURN(const Batch* batch, NextBatch());
  times.data = watch.Lap();
  if (HasTables()) SYNCLINE_RETURN_IF_ERROR(ReadyRows(clock, *batch));
  times.wait = watch.Lap();
  Record({{StepProfile::DATA, times.data}});
  if (HasTables()) Record({{StepProfile::ROWS, times.wait}});

  const bool last = clock + 1 == epochs_.clocks_total;
  const bool reads_cut = ReadsCutAt(clock + 1);
  auto samples = static_cast<uint64_t>(batch->size);
  client_.BeginStep({.clock = clock,
                     .sample_count = samples,
                     .finished = last,
                     .pull = !last && !reads_cut,
                     .rows = HasTables() ? job_.rows->current()
                                         : absl::Span<RowBatch* const>()});
  const bool wants_rows = HasTables() && !last && !reads_cut;
  if (wants_rows) {
    const StepRecorder::Interval interval(recorder(), StepProfile::ROWS);
    PullRowsEarly(clock);
  }
  double loss_sum = 0;
  absl::Duration pushing;
  if (statistics_ != nullptr) statistics_->BeginStep(clock, recorder());
  if (batch->size > 0) {
    fed_values_ += batch->value_count;
    fed_padding_ += batch->padding_count;
    options_.metrics->OnFed(batch->value_count, batch->padding_count);
    const absl::StatusOr<double> loss = Compute(clock, *batch, &pushing);
    if (loss.ok()) {
      loss_sum = *loss;
      if (IsSpoiltByOthers()) WarnOfOthers(clock);
    } else if (GoesOnWithout(loss.status())) {
      client_.AbandonStep(/*own_values=*/!IsSpoiltByOthers());
    } else {
      return loss.status();
    }
  }
  SYNCLINE_RETURN_IF_ERROR(LeaveFolds(*batch));
  times.compute = watch.Lap() - pushing;
  if (statistics_ != nullptr) {
    times.compute -= statistics_->waited();
    times.wait += statistics_->waited();
  }
  client_.EndBackward(wants_rows ? RowsAfter(clock, /*early=*/false)
                                 : absl::Span<RowBatch* const>());
  if (client_.step_abandoned()) {
    samples = 0;
    loss_sum = 0;
  }
  if (HasTables()) UpdateKeptRows(clock, samples);
  times.push = watch.Lap();
  Record({{StepProfile::PUSH, times.push}});
  times.push += pushing;
  SYNCLINE_RETURN_IF_ERROR(client_.Wait());
  Record({{StepProfile::PUSH, client_.wait_times().push},
          {StepProfile::WAIT, client_.wait_times().wait},
          {StepProfile::PULL, client_.wait_times().pull}});
  if (rows_clock_ == clock + 1) KeepRows(clock + 1, job_.rows->next());
  times.push += client_.wait_times().push;
  times.wait += client_.wait_times().wait;
  times.pull = client_.wait_times().pull;
  meter_.AddStep(clock, samples, loss_sum, times);
  history_.Add(clock, samples, loss_sum);
  options_.metrics->OnStep(samples, times);
  EndRecording(samples);
  return absl::OkStatus();
}

absl::StatusOr<double> Trainer::Compute(int64_t clock, const Batch& batch,
                                        absl::Duration* pushing) {
  const auto on_gradient = [&](int tensor) {
    Stopwatch watch;
    client_.OnGradientReady(static_cast<uint32_t>(tensor));
    const absl::Duration pushed = watch.Lap();
    Record({{StepProfile::PUSH, pushed}});
    *pushing += pushed;
  };
  SYNCLINE_ASSIGN_OR_RETURN(
      const Executor::StepResult result,
      executor_.TrainStep(batch, clock, job_.rank, on_gradient));
  return result.loss_sum;
}

absl::Status Trainer::LeaveFolds(const Batch& batch) {
  if (statistics_ == nullptr) return absl::OkStatus();
  // Others may have as many parts as a full batch, which this one has not.
  const bool has_all_parts =
      batch.size >=
      std::max<int64_t>(1, job_.spec().training().micro_batches());
  if (has_all_parts && !client_.step_abandoned()) return absl::OkStatus();
  return statistics_->Leave();
}

bool Trainer::GoesOnWithout(const absl::Status& loss) {
  // A call may fail with the same code.
  const bool folds_failed =
      statistics_ != nullptr && !statistics_->status().ok();
  if (!absl::IsFailedPrecondition(loss) || folds_failed ||
      NonFinitePolicyOf(job_.spec()) == OnNonFinite::kFailJob) {
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

absl::Status Trainer::ReadyRows(int64_t clock, const Batch& batch) {
  job_.rows->Advance();
  executor_.UseTables(job_.rows->current());
  if (rows_clock_ == clock) return absl::OkStatus();
  Collect(batch, job_.rows->current());
  SelectRows(clock, /*early=*/false, {}, job_.rows->current());
  SYNCLINE_RETURN_IF_ERROR(
      client_.PullRows(clock, /*cut_id=*/0, job_.rows->current()));
  KeepRows(clock, job_.rows->current());
  return absl::OkStatus();
}

absl::Span<RowBatch* const> Trainer::RowsAfter(int64_t clock, bool early) {
  if (rows_clock_ == clock + 1) return job_.rows->next();
  const Batch* const batch = prefetcher_.Peek();
  if (batch == nullptr) return {};
  Collect(*batch, job_.rows->next());
  rows_clock_ = clock + 1;
  SelectRows(clock + 1, early, job_.rows->current(), job_.rows->next());
  return job_.rows->next();
}

void Trainer::SelectRows(int64_t clock, bool early,
                         absl::Span<RowBatch* const> current,
                         absl::Span<RowBatch* const> rows) {
  for (size_t t = 0; t < rows.size(); ++t) {
    const RowBatch* const pushed = current.empty() ? nullptr : current[t];
    if (kept_rows_[t] != nullptr) {
      kept_rows_[t]->Select(clock, pushed, early, rows[t]);
      options_.metrics->OnCachedRows(rows[t]->keys().size(),
                                     rows[t]->wanted().size());
    } else if (early) {
      rows[t]->WantEarly([&](int64_t key) { return !pushed->Reads(key); });
    }
  }
}

void Trainer::UpdateKeptRows(int64_t clock, uint64_t samples) {
  for (size_t t = 0; t < kept_rows_.size(); ++t) {
    if (kept_rows_[t] == nullptr) continue;
    kept_rows_[t]->Update(
        clock, samples, *job_.rows->current()[t],
        rows_clock_ == clock + 1 ? job_.rows->next()[t] : nullptr);
  }
}

void Trainer::KeepRows(int64_t clock, absl::Span<RowBatch* const> rows) {
  for (size_t t = 0; t < rows.size(); ++t) {
    if (kept_rows_[t] != nullptr) kept_rows_[t]->Keep(clock, rows[t]);
  }
}

// A pull for the next step waits for this step's push, because of the rows that
// both of them use. The others may be read at once, where the mode does not
// want this step of all workers in them.
void Trainer::PullRowsEarly(int64_t clock) {
  const ConsistencySpec& consistency = job_.spec().consistency();
  int64_t min_clock = 0;
  if (consistency.mode() == ConsistencySpec::BOUNDED_STALENESS) {
    min_clock = clock + 1 - int64_t{consistency.staleness_bound()};
    if (consistency.staleness_bound() == 0) return;
  } else if (consistency.mode() != ConsistencySpec::ASYNC) {
    return;
  }
  client_.PullEarly(RowsAfter(clock, /*early=*/true), min_clock);
}

bool Trainer::ReadsCutAt(int64_t clock) const {
  if (!job_.is_chief()) return false;
  if (job_.has_evaluator()) return clock == epochs_.clocks_total;
  return epochs_.EndOf(clock - 1) == clock;
}

absl::Status Trainer::EndEpoch(int64_t clock) {
  SYNCLINE_RETURN_IF_ERROR(client_.PullCut(CutIdOf(clock), clock));
  // The evaluator may still have to read what this has read for the export.
  if (job_.has_evaluator()) return absl::OkStatus();
  // The next cut before the end of this one, or a worker could run past it.
  if (clock < epochs_.clocks_total) {
    SYNCLINE_RETURN_IF_ERROR(AnnounceCut(job_, epochs_.EndOf(clock), &client_));
  }
  if (HasTables()) {
    // Rows are read batch by batch while the cut is held.
    SYNCLINE_RETURN_IF_ERROR(Evaluate(clock));
    if (clock == epochs_.clocks_total) return absl::OkStatus();
    return client_.EndCut(CutIdOf(clock), clock);
  }
  SYNCLINE_RETURN_IF_ERROR(client_.EndCut(CutIdOf(clock), clock));
  return Evaluate(clock);
}

absl::Status Trainer::Evaluate(int64_t clock) {
  return evaluator_.has_value() ? evaluator_->Run(clock, stop_)
                                : absl::OkStatus();
}

TableReader Trainer::ReaderOf(uint32_t table) {
  const int64_t clock = epochs_.clocks_total;
  return {.scan =
              [this, table, clock](TableReader::Sink sink) {
                return client_.ScanTable(table, job_.training.tables[table].dim,
                                         CutIdOf(clock), clock, sink);
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
  SYNCLINE_RETURN_IF_ERROR(client_.PullRows(
      epochs_.clocks_total, CutIdOf(epochs_.clocks_total), rows));
  const size_t dim = static_cast<size_t>(rows[table]->dim());
  for (size_t i = 0; i < keys.size(); ++i) {
    const auto row = static_cast<size_t>(rows[table]->positions(0)[i]) - 1;
    std::copy_n(rows[table]->value(row), dim, values + i * dim);
  }
  return absl::OkStatus();
}

absl::Status Trainer::EndTables() {
  if (job_.has_evaluator()) return absl::OkStatus();  // it may still read
  return client_.EndCut(CutIdOf(epochs_.clocks_total), epochs_.clocks_total);
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
