#ifndef SYNCLINE_COMMON_JOB_EVALUATION_VALUES_H_
#define SYNCLINE_COMMON_JOB_EVALUATION_VALUES_H_

#include <vector>

#include "absl/strings/string_view.h"
#include "proto/job.pb.h"

namespace syncline {

// A metric of an evaluation, as logs and people read it.
struct EvaluationValue {
  absl::string_view field;  // "top5_accuracy"
  absl::string_view title;  // "top-5 accuracy"
  double value = 0;
  bool is_fraction = false;  // of the samples, in [0, 1]
};

// The metrics that `evaluation` has, in the order of Metric.
inline std::vector<EvaluationValue> EvaluationValues(
    const Evaluation& evaluation) {
  std::vector<EvaluationValue> values;
  const auto add = [&](bool present, EvaluationValue value) {
    if (present) values.push_back(value);
  };
  const Evaluation& e = evaluation;
  add(e.has_accuracy(), {"accuracy", "accuracy", e.accuracy(), true});
  add(e.has_auc(), {"auc", "AUC", e.auc()});
  add(e.has_top5_accuracy(),
      {"top5_accuracy", "top-5 accuracy", e.top5_accuracy(), true});
  add(e.has_log_loss(), {"log_loss", "log loss", e.log_loss()});
  add(e.has_calibration(), {"calibration", "calibration", e.calibration()});
  add(e.has_perplexity(), {"perplexity", "perplexity", e.perplexity()});
  add(e.has_mean_squared_error(),
      {"mean_squared_error", "mean squared error", e.mean_squared_error()});
  return values;
}

}  // namespace syncline

#endif  // SYNCLINE_COMMON_JOB_EVALUATION_VALUES_H_
