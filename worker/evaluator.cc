#include "worker/evaluator.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "absl/time/clock.h"
#include "common/base/status_macros.h"
#include "google/protobuf/util/time_util.h"
#include "worker/metrics.h"

namespace syncline {

Evaluator::Evaluator(const JobSpec& spec, const Dataset* dataset,
                     Executor* executor)
    : spec_(spec), dataset_(dataset), executor_(executor) {}

absl::StatusOr<Evaluation> Evaluator::Run(OnBatch on_batch, Prepare prepare) {
  EvaluationMetrics metrics(spec_.loss().kind(), spec_.metrics());
  const int64_t batch_size = spec_.training().eval_batch_size();
  std::vector<int64_t> indices;
  for (int64_t begin = 0; begin < dataset_->size(); begin += batch_size) {
    SYNCLINE_RETURN_IF_ERROR(on_batch(begin, dataset_->size()));
    indices.resize(std::min(batch_size, dataset_->size() - begin));
    std::iota(indices.begin(), indices.end(), begin);
    dataset_->Read(indices, &batch_);
    dataset_->HasRead({begin, static_cast<int64_t>(indices.size())});
    SYNCLINE_RETURN_IF_ERROR(prepare(batch_));
    SYNCLINE_ASSIGN_OR_RETURN(const Executor::EvalResult result,
                              executor_->Evaluate(batch_));
    metrics.Add(result.loss_sum, result.scores, result.width, batch_.labels,
                result.positions);
  }
  Evaluation evaluation;
  metrics.Report(&evaluation);
  *evaluation.mutable_time() =
      google::protobuf::util::TimeUtil::NanosecondsToTimestamp(
          absl::ToUnixNanos(absl::Now()));
  return evaluation;
}

}  // namespace syncline
