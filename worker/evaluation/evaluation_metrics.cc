#include "worker/evaluation/evaluation_metrics.h"

#include <algorithm>
#include <cmath>

#include "common/base/check.h"
#include "common/job/auc.h"
#include "worker/data/batch.h"

namespace syncline::worker {
namespace {

constexpr size_t kTop = 5;

bool IsRight(absl::Span<const float> logits, float label) {
  if (logits.size() == 1) {
    return !std::isnan(logits[0]) && (logits[0] > 0) == (label == 1);
  }
  size_t best = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i])) return false;
    if (logits[i] > logits[best]) best = i;
  }
  return static_cast<float>(best) == label;
}

// Fewer than kTop logits come before the label's, the first of equals first.
bool IsInTop(absl::Span<const float> logits, size_t label) {
  size_t before = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i])) return false;
    before +=
        logits[i] > logits[label] || (i < label && logits[i] == logits[label]);
  }
  return before < kTop;
}

// Of one logit, or of two: what a sigmoid is taken of.
float BinaryScore(absl::Span<const float> logits) {
  return logits.size() == 1 ? logits[0] : logits[1] - logits[0];
}

// log(1 + exp(x)), for any x.
double Softplus(double x) {
  return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x)));
}

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// -log(probability of the label's class).
double LogLoss(absl::Span<const float> logits, float label) {
  if (logits.size() == 1) {
    const double x = logits[0];
    return Softplus(label == 1 ? -x : x);
  }
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - largest);
  return largest + std::log(sum) - logits[static_cast<size_t>(label)];
}

}  // namespace

EvaluationMetrics::EvaluationMetrics(LossSpec::Kind loss,
                                     absl::Span<const int> wanted)
    : is_regression_(loss == LossSpec::MEAN_SQUARED_ERROR) {
  for (const int metric : wanted) {
    if (is_regression_ && metric != MEAN_SQUARED_ERROR) continue;
    wanted_ |= 1u << metric;
  }
}

void EvaluationMetrics::Add(double loss_sum, absl::Span<const float> scores,
                            int64_t width, absl::Span<const float> labels,
                            int64_t positions) {
  SYNCLINE_CHECK(width > 0 && positions > 0 &&
                 scores.size() % (width * positions) == 0);
  const size_t count = scores.size() / width;
  samples_ += count / positions;
  loss_sum_ += loss_sum;
  width_ = width;
  if (wanted_ == 0) return;
  const size_t label_width = is_regression_ ? width : 1;
  SYNCLINE_CHECK(labels.size() == count * label_width);
  for (size_t i = 0; i < count; ++i) {
    const absl::Span<const float> of_sample = scores.subspan(i * width, width);
    if (is_regression_) {
      ++rows_;
      AddRegression(of_sample, labels.subspan(i * width, width));
      continue;
    }
    if (labels[i] == kIgnoredLabel) continue;
    ++rows_;
    AddClassification(of_sample, labels[i]);
    if (width <= 2) AddBinary(of_sample, labels[i]);
  }
}

void EvaluationMetrics::AddRegression(absl::Span<const float> outputs,
                                      absl::Span<const float> targets) {
  double sum = 0;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const double error = static_cast<double>(outputs[i]) - targets[i];
    sum += error * error;
  }
  squared_error_sum_ += sum / outputs.size();
}

void EvaluationMetrics::AddClassification(absl::Span<const float> logits,
                                          float label) {
  if (Wants(ACCURACY)) correct_ += IsRight(logits, label);
  if (Wants(TOP5_ACCURACY) && logits.size() > kTop) {
    in_top5_ += IsInTop(logits, static_cast<size_t>(label));
  }
  if (Wants(LOG_LOSS) || Wants(PERPLEXITY)) {
    log_loss_sum_ += LogLoss(logits, label);
  }
}

void EvaluationMetrics::AddBinary(absl::Span<const float> logits, float label) {
  const float score = BinaryScore(logits);
  const bool positive = label == 1;
  if (Wants(AUC)) {
    if (std::isnan(score)) auc_defined_ = false;
    (positive ? positive_scores_ : negative_scores_).push_back(score);
  }
  if (Wants(CALIBRATION) || Wants(MEAN_SQUARED_ERROR)) {
    const double probability = Sigmoid(score);
    const double error = probability - (positive ? 1 : 0);
    probability_sum_ += probability;
    squared_error_sum_ += error * error;
    positives_ += positive;
  }
}

double EvaluationMetrics::loss() const {
  return samples_ == 0 ? 0 : loss_sum_ / samples_;
}

std::optional<double> EvaluationMetrics::Mean(Metric metric, double sum) const {
  if (!Wants(metric) || rows_ == 0) return std::nullopt;
  return sum / rows_;
}

std::optional<double> EvaluationMetrics::accuracy() const {
  return Mean(ACCURACY, correct_);
}

std::optional<double> EvaluationMetrics::top5_accuracy() const {
  if (width_ <= static_cast<int64_t>(kTop)) return std::nullopt;
  return Mean(TOP5_ACCURACY, in_top5_);
}

std::optional<double> EvaluationMetrics::auc() const {
  if (!Wants(AUC) || !auc_defined_ || width_ > 2) return std::nullopt;
  return Auc(positive_scores_, negative_scores_);
}

std::optional<double> EvaluationMetrics::log_loss() const {
  return Mean(LOG_LOSS, log_loss_sum_);
}

std::optional<double> EvaluationMetrics::perplexity() const {
  const std::optional<double> mean = Mean(PERPLEXITY, log_loss_sum_);
  if (!mean.has_value()) return std::nullopt;
  return std::exp(*mean);
}

std::optional<double> EvaluationMetrics::calibration() const {
  if (!Wants(CALIBRATION) || positives_ == 0) return std::nullopt;
  return probability_sum_ / positives_;
}

std::optional<double> EvaluationMetrics::mean_squared_error() const {
  if (!is_regression_ && width_ > 2) return std::nullopt;
  return Mean(MEAN_SQUARED_ERROR, squared_error_sum_);
}

void EvaluationMetrics::Report(Evaluation* evaluation) const {
  evaluation->set_samples(static_cast<uint64_t>(samples_));
  evaluation->set_loss(loss());
  if (const auto v = accuracy()) evaluation->set_accuracy(*v);
  if (const auto v = auc()) evaluation->set_auc(*v);
  if (const auto v = top5_accuracy()) evaluation->set_top5_accuracy(*v);
  if (const auto v = log_loss()) evaluation->set_log_loss(*v);
  if (const auto v = calibration()) evaluation->set_calibration(*v);
  if (const auto v = perplexity()) evaluation->set_perplexity(*v);
  if (const auto v = mean_squared_error()) {
    evaluation->set_mean_squared_error(*v);
  }
}

}  // namespace syncline::worker
