#include "worker/evaluation/evaluator.h"

#include <cmath>

#include "absl/time/clock.h"
#include "common/base/status_macros.h"
#include "google/protobuf/util/time_util.h"
#include "worker/evaluation/evaluation_metrics.h"

namespace syncline::worker {

Evaluator::Evaluator(const JobSpec& spec, const Dataset* dataset,
                     Executor* executor)
    : spec_(spec), dataset_(dataset), executor_(executor) {}

absl::Status Evaluator::ForEachBatch(OnBatch on_batch, Prepare visit) {
  BatchPlan plan({.sample_count = dataset_->size(),
                  .batch_size = spec_.training().eval_batch_size(),
                  .shuffle = false,
                  .buckets = dataset_->buckets()});
  int64_t done = 0;
  for (int64_t step = 0; step < plan.steps_per_epoch(); ++step) {
    SYNCLINE_RETURN_IF_ERROR(on_batch(done, dataset_->size()));
    dataset_->Read(plan.Indices(/*epoch=*/0, step), &batch_);
    if (dataset_->buckets().empty()) dataset_->HasRead({done, batch_.size});
    SYNCLINE_RETURN_IF_ERROR(visit(batch_));
    done += batch_.size;
  }
  return absl::OkStatus();
}

absl::StatusOr<Evaluation> Evaluator::Run(OnBatch on_batch, Prepare prepare) {
  not_finite_.clear();
  EvaluationMetrics metrics(spec_.loss().kind(), spec_.metrics());
  const auto evaluate = [&](const Batch& batch) -> absl::Status {
    SYNCLINE_RETURN_IF_ERROR(prepare(batch));
    SYNCLINE_ASSIGN_OR_RETURN(const Executor::EvalResult result,
                              executor_->Evaluate(batch));
    metrics.Add(result.loss_sum, result.scores, result.width, batch.labels,
                result.positions);
    return std::isfinite(result.loss_sum) ? absl::OkStatus()
                                          : OnNotFinite(result);
  };
  SYNCLINE_RETURN_IF_ERROR(ForEachBatch(on_batch, evaluate));
  Evaluation evaluation;
  metrics.Report(&evaluation);
  *evaluation.mutable_time() =
      google::protobuf::util::TimeUtil::NanosecondsToTimestamp(
          absl::ToUnixNanos(absl::Now()));
  return evaluation;
}

absl::Status Evaluator::OnNotFinite(const Executor::EvalResult& result) {
  const bool is_recorded =
      spec_.non_finite() == SKIP_STEP || spec_.non_finite() == DROP_BLOCK;
  if (is_recorded && !not_finite_.empty()) return absl::OkStatus();
  const absl::Status why = executor_->WhyNotFinite(result);
  if (!is_recorded) return why;
  not_finite_ = std::string(why.message());
  return absl::OkStatus();
}

}  // namespace syncline::worker
