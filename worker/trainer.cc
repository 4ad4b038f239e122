#include "worker/trainer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/log.h"
#include "common/base/periodic_task.h"
#include "common/base/status_macros.h"
#include "common/rpc/evaluation_values.h"
#include "worker/initializers.h"

namespace syncline {
namespace {

constexpr absl::Duration kReportPeriod = absl::Milliseconds(500);
// How often a wait for data looks at the stop flag.
constexpr absl::Duration kStopPeriod = absl::Milliseconds(200);

// The time since the previous lap.
class Stopwatch {
 public:
  absl::Duration Lap() {
    const absl::Time now = absl::Now();
    return now - std::exchange(last_, now);
  }

 private:
  absl::Time last_ = absl::Now();
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
  const BatchPlan plan(options.plan);
  options.clocks =
      Epochs::Of(spec.training(), plan.steps_per_epoch()).clocks_total;
  return options;
}

// In sync mode the servers compute the norm of the folded gradient themselves.
bool NeedsNorm(const JobSpec& spec) {
  return spec.optimizer().clip_norm() > 0 &&
         (spec.consistency().mode() == ConsistencySpec::ASYNC ||
          spec.consistency().mode() == ConsistencySpec::BOUNDED_STALENESS);
}

PsClient::Options ClientOptions(const PreparedJob& job,
                                const Trainer::Options& trainer) {
  PsClient::Options options;
  options.job_id = job.assignment.job_id();
  options.rank = job.rank;
  options.incarnation = trainer.incarnation;
  options.routing_version = job.assignment.routing_version();
  for (const Participant& ps : job.assignment.ps()) {
    options.ps.push_back({absl::StrCat("ps:", ps.member().task().index()),
                          ps.member().address()});
  }
  options.step_timeout =
      absl::Seconds(job.spec().limits().step_timeout_seconds());
  options.send_norm = NeedsNorm(job.spec());
  options.retries = trainer.metrics->retries();
  options.pushed_bytes = trainer.metrics->pushed_bytes();
  options.pulled_bytes = trainer.metrics->pulled_bytes();
  return options;
}

PsClient::Tensors ClientTensors(const PreparedJob& job) {
  PsClient::Tensors tensors;
  const int count = static_cast<int>(job.training.parameters.size());
  for (int i = 0; i < count; ++i) {
    tensors.values.push_back(job.executor->parameter(i));
    tensors.gradients.push_back(job.executor->gradient(i));
  }
  tensors.owner = job.executor;
  return tensors;
}

// Non-zero and unique within the job.
uint64_t CutId(int64_t clock) { return static_cast<uint64_t>(clock); }

}  // namespace

Trainer::Trainer(const PreparedJob& job, Options options)
    : job_(job),
      options_(std::move(options)),
      executor_(*job.executor),
      prefetcher_(job.train.get(), PrefetcherOptions(job)),
      epochs_(Epochs::Of(job.spec().training(), prefetcher_.steps_per_epoch())),
      meter_(job.rank, epochs_, absl::Now()),
      client_(ClientOptions(job, options_), *job.map, ClientTensors(job)) {
  if (job.test != nullptr) {
    evaluator_.emplace(job.spec(), job.test.get(), job.executor.get());
  }
}

absl::Status Trainer::Run() {
  const auto send_report = [this] {
    options_.on_progress(meter_.Report(absl::Now()));
  };
  PeriodicTask report("progress", kReportPeriod, send_report);
  absl::Status status = Train();
  report.Stop();
  send_report();
  if (!status.ok() && stop_.load()) return absl::CancelledError("stopped");
  return status;
}

void Trainer::Stop() {
  stop_.store(true);
  client_.Cancel(absl::CancelledError("stopped"));
}

WorkerProgress Trainer::Totals() const { return meter_.Totals(absl::Now()); }

absl::Status Trainer::Train() {
  SYNCLINE_RETURN_IF_ERROR(Start());
  for (int64_t clock = 0; clock < epochs_.clocks_total; ++clock) {
    SYNCLINE_RETURN_IF_ERROR(Step(clock));
    if (job_.is_chief() && EpochEndsAt(clock + 1)) {
      SYNCLINE_RETURN_IF_ERROR(EndEpoch(clock + 1));
    }
  }
  return absl::OkStatus();
}

absl::Status Trainer::Start() {
  if (job_.is_chief()) {
    FillInitialValues();
    // Nobody can push before the shards are initialised, so nobody can be past
    // the first cut when it is announced.
    SYNCLINE_RETURN_IF_ERROR(AnnounceCut(epochs_.EndOf(0)));
    SYNCLINE_RETURN_IF_ERROR(client_.Init(epochs_.clocks_total));
  }
  return client_.Pull(0);
}

absl::Status Trainer::Step(int64_t clock) {
  ProgressMeter::StepTimes times;
  Stopwatch watch;
  SYNCLINE_ASSIGN_OR_RETURN(const Batch* batch, NextBatch());
  times.data = watch.Lap();

  const bool last = clock + 1 == epochs_.clocks_total;
  const bool reads_cut = job_.is_chief() && EpochEndsAt(clock + 1);
  const auto samples = static_cast<uint64_t>(batch->size);
  client_.BeginStep({.clock = clock,
                     .sample_count = samples,
                     .finished = last,
                     .pull = !last && !reads_cut});
  double loss_sum = 0;
  absl::Duration pushing;
  if (batch->size > 0) {
    SYNCLINE_ASSIGN_OR_RETURN(loss_sum, Compute(clock, *batch, &pushing));
  }
  times.compute = watch.Lap() - pushing;
  client_.EndBackward();
  times.push = watch.Lap() + pushing;
  SYNCLINE_RETURN_IF_ERROR(client_.Wait());
  times.wait = watch.Lap();
  meter_.AddStep(clock, samples, loss_sum, times);
  options_.metrics->OnStep(samples, times);
  return absl::OkStatus();
}

absl::StatusOr<double> Trainer::Compute(int64_t clock, const Batch& batch,
                                        absl::Duration* pushing) {
  const auto on_gradient = [&](int tensor) {
    Stopwatch watch;
    client_.OnGradientReady(static_cast<uint32_t>(tensor));
    *pushing += watch.Lap();
  };
  SYNCLINE_ASSIGN_OR_RETURN(
      const Executor::StepResult result,
      executor_.TrainStep(batch, clock, job_.rank, on_gradient));
  return result.loss_sum;
}

absl::StatusOr<const Batch*> Trainer::NextBatch() {
  while (!stop_.load()) {
    absl::StatusOr<const Batch*> batch =
        prefetcher_.Next(absl::Now() + kStopPeriod);
    if (!absl::IsDeadlineExceeded(batch.status())) return batch;
  }
  return absl::CancelledError("stopped");
}

absl::Status Trainer::EndEpoch(int64_t clock) {
  SYNCLINE_RETURN_IF_ERROR(client_.PullCut(CutId(clock), clock));
  // The next cut before the end of this one, or a worker could run past it.
  if (clock < epochs_.clocks_total) {
    SYNCLINE_RETURN_IF_ERROR(AnnounceCut(epochs_.EndOf(clock)));
  }
  SYNCLINE_RETURN_IF_ERROR(client_.EndCut(CutId(clock), clock));
  return Evaluate(clock);
}

absl::Status Trainer::Evaluate(int64_t clock) {
  if (!evaluator_.has_value()) return absl::OkStatus();
  SYNCLINE_ASSIGN_OR_RETURN(Evaluation evaluation, evaluator_->Run(stop_));
  evaluation.set_epoch(epochs_.DoneAt(clock));
  evaluation.set_clock(clock);
  evaluation.set_final(clock == epochs_.clocks_total);
  LogEvaluation(evaluation);
  evaluations_.push_back(evaluation);
  options_.on_evaluation(evaluation);
  return absl::OkStatus();
}

void Trainer::LogEvaluation(const Evaluation& evaluation) const {
  LogInfo line("evaluated");
  line.Job(job_.assignment.job_id())
      .Field("epoch", evaluation.epoch())
      .Field("clock", evaluation.clock())
      .Field("samples", evaluation.samples())
      .Field("loss", evaluation.loss());
  for (const EvaluationValue& metric : EvaluationValues(evaluation)) {
    line.Field(metric.field, metric.value);
  }
}

absl::Status Trainer::AnnounceCut(int64_t clock) {
  return client_.BeginCut(
      CutId(clock), clock,
      static_cast<uint32_t>(job_.assignment.workers_size()));
}

void Trainer::FillInitialValues() {
  const auto& rules = job_.spec().model().initialize();
  const auto& parameters = job_.training.parameters;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].rule < 0) continue;
    InitializeParameter(rules[parameters[i].rule],
                        FansOf(job_.model->graph(), parameters[i].value),
                        job_.spec().training().seed(), parameters[i].name,
                        executor_.parameter(static_cast<int>(i)));
  }
}

}  // namespace syncline
