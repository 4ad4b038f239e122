#include "worker/evaluation/cut_evaluator.h"

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/job/evaluation_values.h"
#include "common/system/log.h"

namespace syncline::worker {
namespace {

// Number of activity reports within a step timeout: workers that wait for the
// evaluator go on waiting when a few reports are lost.
constexpr int kActivitiesPerTimeout = 8;
// How often progress is reported to the scheduler.
constexpr absl::Duration kSayPeriod = absl::Seconds(1);

}  // namespace

CutEvaluator::CutEvaluator(const PreparedJob& job, const Epochs& epochs,
                           ParameterExchange* parameters,
                           WorkerMetrics* metrics, OnEvaluation on_evaluation,
                           std::function<void(const std::string&)> on_activity,
                           CheckpointRows* from_checkpoint)
    : job_(job),
      epochs_(epochs),
      parameters_(parameters),
      metrics_(metrics),
      on_evaluation_(std::move(on_evaluation)),
      on_activity_(std::move(on_activity)),
      from_checkpoint_(from_checkpoint),
      evaluator_(job.spec(), job.test.get(), job.executor.get()),
      best_(job.spec().export_().best_of()),
      stop_(StopRule::Of(job.spec())) {}

absl::Status CutEvaluator::CollectKeys(int64_t clock,
                                       const std::atomic<bool>& stopped) {
  said_at_ = MonotonicNow();
  const std::string what = absl::StrCat("evaluating clock ", clock,
                                        ": collecting the keys of its data");
  Say(what);
  const absl::Span<RowBatch* const> rows = job_.rows->evaluated();
  return evaluator_.ForEachBatch(
      [&](int64_t done, int64_t total) {
        if (stopped.load()) return absl::CancelledError("stopped");
        SayProgress(what, done, total);
        return absl::OkStatus();
      },
      [&](const Batch& batch) {
        Collect(batch, rows);
        return from_checkpoint_->AddKeys(rows);
      });
}

absl::Status CutEvaluator::Run(const EpochCut& cut,
                               const std::atomic<bool>& stopped,
                               const std::string& checkpoint) {
  const int64_t clock = cut.clock;
  const absl::Time start = MonotonicNow();
  told_at_ = start;  // by a call that has to do with the cut
  said_at_ = start;
  Say(absl::StrCat("evaluating clock ", clock));
  const absl::Cleanup over = [this] { Say(""); };
  const auto on_batch = [&](int64_t done, int64_t total) {
    if (stopped.load()) return absl::CancelledError("stopped while evaluating");
    return OnBatch(clock, done, total);
  };
  const auto read_rows = [&](const Batch& batch) {
    return job_.rows != nullptr ? ReadRows(cut, batch) : absl::OkStatus();
  };
  SYNCLINE_ASSIGN_OR_RETURN(Evaluation evaluation,
                            evaluator_.Run(on_batch, read_rows));
  evaluation.set_epoch(epochs_.DoneAt(clock));
  evaluation.set_clock(clock);
  evaluation.set_checkpoint(checkpoint);
  stop_reason_ = stop_.Offer(evaluation);
  // The last clock is the end in any case.
  if (clock == epochs_.clocks_total) stop_reason_.clear();
  evaluation.set_final(clock == epochs_.clocks_total || !stop_reason_.empty());
  if (best_.Offer(evaluation)) evaluation.set_best(true);
  metrics_->OnEvaluation(evaluation.samples(), MonotonicNow() - start);
  Log(evaluation);
  if (!evaluator_.not_finite().empty()) {
    LogWarning("an evaluation is not finite")
        .Job(job_.assignment.job_id())
        .Field("epoch", evaluation.epoch())
        .Field("clock", evaluation.clock())
        .Field("error", evaluator_.not_finite());
  }
  evaluations_.push_back(evaluation);
  return HandOver(evaluation);
}

absl::Status CutEvaluator::HandOver(const Evaluation& evaluation) {
  absl::Status told;
  on_evaluation_(evaluation, [&](uint64_t bytes) {
    if (told.ok()) told = OnStoring(evaluation.clock(), bytes);
  });
  return told;
}

absl::Status CutEvaluator::OnStoring(int64_t clock, uint64_t bytes) {
  const absl::Time now = MonotonicNow();
  const std::string what =
      absl::StrCat("evaluating clock ", clock, ": storing the best parameters");
  if (bytes == 0 || now >= said_at_ + kSayPeriod) {
    said_at_ = now;
    Say(absl::StrCat(what, ", ", bytes, " bytes"));
  }
  if (parameters_ == nullptr) return absl::OkStatus();
  if (bytes > 0 && now < told_at_ + ToldPeriod()) return absl::OkStatus();
  told_at_ = now;
  // More than what was done when the last batch was.
  const uint64_t done = static_cast<uint64_t>(samples_) + bytes;
  return parameters_->ReportActivity(clock, what, done,
                                     std::max<uint64_t>(done, 1));
}

absl::Duration CutEvaluator::ToldPeriod() const {
  return absl::Seconds(job_.spec().limits().step_timeout_seconds()) /
         kActivitiesPerTimeout;
}

absl::Status CutEvaluator::ReadRows(const EpochCut& cut, const Batch& batch) {
  const absl::Span<RowBatch* const> rows = job_.rows->evaluated();
  Collect(batch, rows);
  if (parameters_ != nullptr) return ReadRowsOfJob(cut, rows);
  from_checkpoint_->Read(rows);
  job_.executor->UseTables(rows);
  return absl::OkStatus();
}

absl::Status CutEvaluator::ReadRowsOfJob(const EpochCut& cut,
                                         absl::Span<RowBatch* const> rows) {
  const int64_t clock = cut.clock;
  for (size_t t = 0; t < rows.size(); ++t) {
    RowCache* const cache = job_.rows->cache(t);
    if (cache == nullptr) continue;
    rows[t]->WantOnly([&](size_t i) {
      const float* const row = cache->Find(rows[t]->keys()[i], clock);
      if (row != nullptr) std::copy_n(row, rows[t]->dim(), rows[t]->value(i));
      return row == nullptr;
    });
    metrics_->OnCachedRows(rows[t]->keys().size(), rows[t]->wanted().size());
  }
  job_.executor->UseTables(rows);
  SYNCLINE_RETURN_IF_ERROR(parameters_->PullRows(clock, cut.id, rows));
  for (size_t t = 0; t < rows.size(); ++t) {
    RowCache* const cache = job_.rows->cache(t);
    if (cache == nullptr) continue;
    for (const uint32_t i : rows[t]->wanted()) {
      cache->Put(rows[t]->keys()[i], clock, rows[t]->value(i));
    }
  }
  return absl::OkStatus();
}

void CutEvaluator::SayProgress(const std::string& activity, int64_t done,
                               int64_t total) {
  const absl::Time now = MonotonicNow();
  if (now < said_at_ + kSayPeriod) return;
  said_at_ = now;
  Say(absl::StrCat(activity, ", ", done, " of ", total, " samples"));
}

absl::Status CutEvaluator::OnBatch(int64_t clock, int64_t done, int64_t total) {
  samples_ = total;
  const absl::Time now = MonotonicNow();
  SayProgress(absl::StrCat("evaluating clock ", clock), done, total);
  if (parameters_ == nullptr || now < told_at_ + ToldPeriod()) {
    return absl::OkStatus();
  }
  told_at_ = now;
  return parameters_->ReportActivity(
      clock, absl::StrCat("evaluating clock ", clock),
      static_cast<uint64_t>(done), static_cast<uint64_t>(total));
}

void CutEvaluator::Log(const Evaluation& evaluation) const {
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

}  // namespace syncline::worker
