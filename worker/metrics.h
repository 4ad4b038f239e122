#ifndef SYNCLINE_WORKER_METRICS_H_
#define SYNCLINE_WORKER_METRICS_H_

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "proto/job_spec.pb.h"

namespace syncline {

// Loss, accuracy and AUC over the batches of one evaluation, exact whatever the
// batch size. AUC keeps 8 bytes per sample. Thread-compatible.
class EvaluationMetrics {
 public:
  // What is not asked for, or not defined for the loss, is not computed.
  EvaluationMetrics(LossSpec::Kind loss, bool accuracy, bool auc);

  // One batch of n samples: `loss_sum` over them, `scores` [n, width] of the
  // loss's output (logits), `labels` [n] class numbers; those of a regression
  // are not looked at.
  void Add(double loss_sum, absl::Span<const float> scores, int64_t width,
           absl::Span<const float> labels);

  int64_t samples() const { return samples_; }
  // Mean per sample; 0 without samples.
  double loss() const;
  // Fraction of samples whose class has the largest logit (the first, of
  // equals), or, with one logit, whose class is 1 exactly if it is > 0. A NaN
  // is never right. Absent without samples.
  std::optional<double> accuracy() const;
  // Probability that a sample of class 1 scores above one of class 0, ties
  // counted half; with two logits the score is their difference. Absent where
  // it is not defined: other than two classes, only one of them in the data, a
  // score that is NaN. Costs a sort. Source: Hanley and McNeil 1982.
  std::optional<double> auc() const;

 private:
  void AddAccuracy(absl::Span<const float> scores, int64_t width,
                   absl::Span<const float> labels);
  void AddScores(absl::Span<const float> scores, int64_t width,
                 absl::Span<const float> labels);

  const bool want_accuracy_;
  const bool want_auc_;
  bool auc_defined_ = true;
  int64_t samples_ = 0;
  int64_t correct_ = 0;
  double loss_sum_ = 0;
  std::vector<float> positive_;  // scores of class 1
  std::vector<float> negative_;  // scores of class 0
};

}  // namespace syncline

#endif  // SYNCLINE_WORKER_METRICS_H_
