// Rows of op_table_test for losses that are nodes of the graph.

#include <cmath>
#include <optional>

#include "tests/testing/op_case.h"

namespace syncline::testing {
namespace {

using reference::Dims;

struct ClassLossSettings {
  std::string op_type;
  std::string reduction;
  std::vector<int64_t> labels;
  std::vector<float> weights = {};  // empty: none
  std::optional<int64_t> ignored = {};
  DType label_type = DType::kInt64;
};

// Scores [N, classes, ...] as log probabilities: they are, or softmax makes
// them so.
DoubleArray LogProbabilities(const ClassLossSettings& s, const DoubleArray& x) {
  return s.op_type == "SoftmaxCrossEntropyLoss" ? reference::LogSoftmax(x, 1, 2)
                                                : x;
}

// The loss is a sum of log probabilities, each with a weight.
Terms LossTerms(const ClassLossSettings& s, const Dims& scores) {
  const int64_t classes = scores[1];
  const int64_t inner = reference::Product({scores.begin() + 2, scores.end()});
  Terms terms;
  double sum = 0;
  for (size_t i = 0; i < s.labels.size(); ++i) {
    const int64_t label = s.labels[i];
    if (label == s.ignored) continue;
    const double weight = s.weights.empty() ? 1 : s.weights[label];
    sum += weight;
    const int64_t n = static_cast<int64_t>(i) / inner;
    const int64_t at = static_cast<int64_t>(i) % inner;
    terms.push_back({s.reduction == "none" ? static_cast<int64_t>(i) : 0, 0,
                     (n * classes + label) * inner + at, -weight});
  }
  for (reference::Term& term : terms) {
    if (s.reduction == "mean") term.weight /= sum;
  }
  return terms;
}

OpCase ClassLossCase(const ClassLossSettings& s, Dims scores) {
  Dims labels = scores;
  labels.erase(labels.begin() + 1);
  const Dims out = s.reduction == "none" ? labels : Dims{};
  const Terms terms = LossTerms(s, scores);
  OpCase c;
  c.op_type = s.op_type;
  c.version = 13;
  c.attributes = {{"reduction", s.reduction}};
  if (s.ignored.has_value()) c.attributes["ignore_index"] = *s.ignored;
  c.inputs = {scores};
  c.integers = {{1, labels, s.labels, s.label_type}};
  if (!s.weights.empty()) {
    c.fixed = {{2, {static_cast<int64_t>(s.weights.size())}, s.weights}};
  }
  c.forward = [=](const Inputs& in) {
    return reference::Linear(terms, out, Inputs{LogProbabilities(s, in[0])});
  };
  c.gradient = [=](const Inputs& in, const DoubleArray& dy) {
    Gradients d = reference::LinearGradient(terms, in, dy);
    if (s.op_type != "SoftmaxCrossEntropyLoss") return d;
    return reference::LogSoftmaxGradient(in[0], 1, 2, d[0]);
  };
  return c;
}

}  // namespace

std::vector<OpCase> ClassLossCases() {
  std::vector<OpCase> cases;
  for (const std::string op :
       {"SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"}) {
    for (const std::string reduction : {"none", "sum", "mean"}) {
      cases.push_back(ClassLossCase({op, reduction, {2, 0, 4}}, {3, 5}));
      cases.push_back(
          ClassLossCase({op, reduction, {2, 0, 1}, {0.5f, 2, 1}}, {3, 3}));
      cases.push_back(ClassLossCase(
          {op, reduction, {2, 0, -7, 1, 1, 2}, {}, -7, DType::kInt32},
          {2, 3, 3}));
      cases.push_back(ClassLossCase(
          {op, reduction, {1, 0, 0, 1, 1, 1, 0, 1}, {0.25f, 3}, 0},
          {2, 2, 2, 2}));
    }
  }
  return cases;
}

}  // namespace syncline::testing
