#ifndef SYNCLINE_WORKER_EVALUATION_BEST_EVALUATION_H_
#define SYNCLINE_WORKER_EVALUATION_BEST_EVALUATION_H_

#include <optional>

#include "proto/job.pb.h"
#include "proto/job_spec.pb.h"

namespace syncline::worker {

// A metric of an evaluation; not a number where the evaluation has none.
double EvaluationMetric(const Evaluation& evaluation, Metric metric);
// The same, so that the larger is the better.
double EvaluationScore(const Evaluation& evaluation, Metric by);

// Which of a job's evaluations is the best so far (ExportSpec.best_of).
// Thread-compatible.
class BestEvaluation {
 public:
  // METRIC_UNSPECIFIED: none ever is.
  explicit BestEvaluation(Metric by) : by_(by) {}

  // True if `evaluation` is better than all before it. An evaluation that is as
  // good as the best is not better, nor is one whose value is absent or not a
  // number.
  bool Offer(const Evaluation& evaluation);

 private:
  const Metric by_;
  std::optional<double> best_;  // larger is better
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_EVALUATION_BEST_EVALUATION_H_
