#include "worker/evaluation/stop_rule.h"

#include <cmath>

#include "absl/strings/str_format.h"
#include "worker/evaluation/best_evaluation.h"

namespace syncline::worker {

std::string StopRule::Offer(const Evaluation& evaluation) {
  if (!spec_.has_value()) return "";
  const double score = EvaluationScore(evaluation, spec_->metric());
  const bool is_better =
      !std::isnan(score) &&
      (!best_.has_value() || score - best_->score > spec_->min_change());
  if (is_better) {
    best_ = Best{.score = score,
                 .value = EvaluationMetric(evaluation, spec_->metric()),
                 .epoch = evaluation.epoch()};
    not_better_ = 0;
    return "";
  }
  if (++not_better_ < spec_->patience()) return "";
  const std::string metric = Metric_Name(spec_->metric());
  if (!best_.has_value()) {
    return absl::StrFormat("%s was not a number in %d evaluations", metric,
                           not_better_);
  }
  return absl::StrFormat(
      "%s, %.6g at epoch %d, has become no better%s in %d evaluations", metric,
      best_->value, best_->epoch,
      spec_->min_change() > 0
          ? absl::StrFormat(" by more than %.6g", spec_->min_change())
          : "",
      not_better_);
}

}  // namespace syncline::worker
