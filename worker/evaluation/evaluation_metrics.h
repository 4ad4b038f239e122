#ifndef SYNCLINE_WORKER_EVALUATION_EVALUATION_METRICS_H_
#define SYNCLINE_WORKER_EVALUATION_EVALUATION_METRICS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "proto/job.pb.h"
#include "proto/job_spec.pb.h"

namespace syncline::worker {

// Loss and metrics (Metric in job_spec.proto defines them) over the batches of
// one evaluation: sums over all samples in double, whatever the batch size. AUC
// keeps 4 bytes per sample. Thread-compatible.
class EvaluationMetrics {
 public:
  // `wanted` are values of Metric. Metrics that are not wanted, or that have no
  // meaning for the loss, are not computed.
  EvaluationMetrics(LossSpec::Kind loss, absl::Span<const int> wanted);

  // One batch of n samples: `loss_sum` over them, `scores` [n, width] of the
  // loss's output (logits), `labels`: [n] class numbers or, for regression,
  // [n, width] targets. Where each sample has several `positions` with a label
  // of their own, there are n * positions rows of scores and labels, and all
  // metrics are over these, but for those with kIgnoredLabel. The loss remains
  // the mean over samples, those without any label among them.
  void Add(double loss_sum, absl::Span<const float> scores, int64_t width,
           absl::Span<const float> labels, int64_t positions = 1);

  int64_t samples() const { return samples_; }
  // Mean per sample; 0 without samples.
  double loss() const;
  // Fraction of samples whose class has the largest logit (the first, of
  // equals), or, with one logit, whose class is 1 exactly if it is > 0. A NaN
  // is never right. Absent, like all below, without samples.
  std::optional<double> accuracy() const;
  // The same for the five largest. Absent with five classes or fewer.
  std::optional<double> top5_accuracy() const;
  // With two logits the score is their difference. Absent where it is not
  // defined: other than two classes, only one of them in the data, a score that
  // is NaN. Costs a sort.
  std::optional<double> auc() const;
  // Infinite where a class has probability 0.
  std::optional<double> log_loss() const;
  std::optional<double> perplexity() const;
  // Absent, too, without samples of class 1 and with other than two classes.
  std::optional<double> calibration() const;
  // Absent, too, with more than two classes.
  std::optional<double> mean_squared_error() const;

  // Sets samples, loss, and each metric that is there.
  void Report(Evaluation* evaluation) const;

 private:
  bool Wants(Metric metric) const { return (wanted_ >> metric & 1) != 0; }
  void AddClassification(absl::Span<const float> logits, float label);
  void AddBinary(absl::Span<const float> logits, float label);
  void AddRegression(absl::Span<const float> outputs,
                     absl::Span<const float> targets);
  // sum / rows; absent unless it is wanted and there are any.
  std::optional<double> Mean(Metric metric, double sum) const;

  uint32_t wanted_ = 0;  // bit m: Metric m
  const bool is_regression_;
  int64_t width_ = 0;  // logits per sample
  bool auc_defined_ = true;
  int64_t samples_ = 0;
  int64_t rows_ = 0;  // of scores that count: samples * positions at most
  int64_t correct_ = 0;
  int64_t in_top5_ = 0;
  double loss_sum_ = 0;
  double log_loss_sum_ = 0;
  double probability_sum_ = 0;    // of class 1
  double squared_error_sum_ = 0;  // of samples' means
  int64_t positives_ = 0;
  std::vector<float> positive_scores_;
  std::vector<float> negative_scores_;
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_EVALUATION_EVALUATION_METRICS_H_
