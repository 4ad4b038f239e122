#include "worker/metrics.h"

#include <algorithm>
#include <cmath>

#include "common/base/check.h"

namespace syncline {
namespace {

bool IsClassification(LossSpec::Kind loss) {
  return loss == LossSpec::SOFTMAX_CROSS_ENTROPY ||
         loss == LossSpec::SIGMOID_CROSS_ENTROPY;
}

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

}  // namespace

EvaluationMetrics::EvaluationMetrics(LossSpec::Kind loss, bool accuracy,
                                     bool auc)
    : want_accuracy_(accuracy && IsClassification(loss)),
      want_auc_(auc && IsClassification(loss)) {}

void EvaluationMetrics::Add(double loss_sum, absl::Span<const float> scores,
                            int64_t width, absl::Span<const float> labels) {
  SYNCLINE_CHECK(width > 0 && scores.size() % width == 0);
  samples_ += scores.size() / width;
  loss_sum_ += loss_sum;
  if (want_accuracy_) AddAccuracy(scores, width, labels);
  if (want_auc_) AddScores(scores, width, labels);
}

void EvaluationMetrics::AddAccuracy(absl::Span<const float> scores,
                                    int64_t width,
                                    absl::Span<const float> labels) {
  SYNCLINE_CHECK(labels.size() * width == scores.size());
  for (size_t i = 0; i < labels.size(); ++i) {
    correct_ += IsRight(scores.subspan(i * width, width), labels[i]);
  }
}

void EvaluationMetrics::AddScores(absl::Span<const float> scores, int64_t width,
                                  absl::Span<const float> labels) {
  SYNCLINE_CHECK(labels.size() * width == scores.size());
  if (width > 2) auc_defined_ = false;
  if (!auc_defined_) return;
  for (size_t i = 0; i < labels.size(); ++i) {
    const float* logits = &scores[i * width];
    const float score = width == 1 ? logits[0] : logits[1] - logits[0];
    if (std::isnan(score)) auc_defined_ = false;
    (labels[i] == 1 ? positive_ : negative_).push_back(score);
  }
}

double EvaluationMetrics::loss() const {
  return samples_ == 0 ? 0 : loss_sum_ / samples_;
}

std::optional<double> EvaluationMetrics::accuracy() const {
  if (!want_accuracy_ || samples_ == 0) return std::nullopt;
  return static_cast<double>(correct_) / samples_;
}

std::optional<double> EvaluationMetrics::auc() const {
  if (!want_auc_ || !auc_defined_) return std::nullopt;
  if (positive_.empty() || negative_.empty()) return std::nullopt;
  std::vector<float> positive = positive_;
  std::vector<float> negative = negative_;
  std::sort(positive.begin(), positive.end());
  std::sort(negative.begin(), negative.end());
  // Counts half pairs in integers, so no rounding before the one division.
  uint64_t half_pairs = 0;
  size_t below = 0;      // negatives < the positive at hand
  size_t not_above = 0;  // negatives <= it
  for (const float score : positive) {
    while (below < negative.size() && negative[below] < score) ++below;
    while (not_above < negative.size() && negative[not_above] <= score) {
      ++not_above;
    }
    half_pairs += below + not_above;
  }
  return static_cast<double>(half_pairs) /
         (2.0 * static_cast<double>(positive.size()) *
          static_cast<double>(negative.size()));
}

}  // namespace syncline
