#include "worker/evaluation/best_evaluation.h"

#include <cmath>

namespace syncline::worker {

double EvaluationMetric(const Evaluation& e, Metric metric) {
  switch (metric) {
    case LOSS:
      return e.has_loss() ? e.loss() : NAN;
    case ACCURACY:
      return e.has_accuracy() ? e.accuracy() : NAN;
    case AUC:
      return e.has_auc() ? e.auc() : NAN;
    case TOP5_ACCURACY:
      return e.has_top5_accuracy() ? e.top5_accuracy() : NAN;
    case LOG_LOSS:
      return e.has_log_loss() ? e.log_loss() : NAN;
    case CALIBRATION:
      return e.has_calibration() ? e.calibration() : NAN;
    case PERPLEXITY:
      return e.has_perplexity() ? e.perplexity() : NAN;
    case MEAN_SQUARED_ERROR:
      return e.has_mean_squared_error() ? e.mean_squared_error() : NAN;
    default:
      return NAN;
  }
}

double EvaluationScore(const Evaluation& e, Metric by) {
  const double value = EvaluationMetric(e, by);
  switch (by) {
    case ACCURACY:
    case AUC:
    case TOP5_ACCURACY:
      return value;
    case CALIBRATION:
      return -std::abs(value - 1);
    default:
      return -value;
  }
}

bool BestEvaluation::Offer(const Evaluation& evaluation) {
  const double score = EvaluationScore(evaluation, by_);
  if (std::isnan(score)) return false;
  if (best_.has_value() && score <= *best_) return false;
  best_ = score;
  return true;
}

}  // namespace syncline::worker
