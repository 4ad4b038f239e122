#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/softmax.h"
#include "worker/ops/op.h"

namespace syncline::worker {
namespace {

enum class LossReduction { kNone, kSum, kMean };

struct CrossEntropy {
  SoftmaxShape shape;  // of the scores: samples, classes, places in a sample
  bool normalizes = false;
  LossReduction reduction = LossReduction::kMean;
  std::optional<int64_t> ignored;
  bool narrow_labels = false;  // int32

  int64_t score_count() const { return shape.outer * shape.n * shape.inner; }
  int64_t label_count() const { return shape.outer * shape.inner; }
};

// In the workspace: a label that costs nothing.
constexpr int64_t kIgnored = -1;

class CrossEntropyOp : public Op {
 public:
  explicit CrossEntropyOp(const CrossEntropy& loss)
      : Op(TraitsOf(loss)), l_(loss) {}

  absl::Status Forward(const Tensors& t) override {
    const Kept kept = KeptIn(t);
    const float* log_p = t.in(0);
    if (l_.normalizes) {
      LogSoftmax(l_.shape, t.in(0), kept.log_p);
      log_p = kept.log_p;
      if (t.out(1) != nullptr) {
        std::copy_n(log_p, l_.score_count(), t.out(1));
      }
    }
    double loss = 0;
    double weights = 0;
    for (int64_t i = 0; i < l_.label_count(); ++i) {
      SYNCLINE_RETURN_IF_ERROR(Look(t, i, kept));
      const float cost =
          kept.at[i] == kIgnored ? 0.0f : -kept.weights[i] * log_p[kept.at[i]];
      if (l_.reduction == LossReduction::kNone) t.out(0)[i] = cost;
      loss += cost;
      weights += kept.weights[i];
    }
    *kept.divisor = l_.reduction == LossReduction::kMean
                        ? static_cast<float>(weights)
                        : 1.0f;
    if (l_.reduction != LossReduction::kNone) {
      t.out(0)[0] = static_cast<float>(loss / *kept.divisor);
    }
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    const Kept kept = KeptIn(t);
    if (!l_.normalizes) {
      if (!g.accumulate(0)) std::fill_n(g.in(0), l_.score_count(), 0.0f);
      AddLossGradient(kept, g.out(), g.in(0));
      return absl::OkStatus();
    }
    float* const dlog_p = static_cast<float*>(t.scratch);
    const bool is_read = g.outputs.size() > 1 && g.outputs[1] != nullptr;
    if (is_read) {
      std::copy_n(g.outputs[1], l_.score_count(), dlog_p);
    } else {
      std::fill_n(dlog_p, l_.score_count(), 0.0f);
    }
    if (g.out() != nullptr) AddLossGradient(kept, g.out(), dlog_p);
    LogSoftmaxGradient(l_.shape, kept.log_p, dlog_p, g.accumulate(0), g.in(0));
    return absl::OkStatus();
  }

 private:
  // Arrays that Forward leaves for Backward.
  struct Kept {
    int64_t* at;     // by label: where its log probability is
    float* weights;  // by label; 0 if it is ignored
    float* divisor;  // of the loss
    float* log_p;    // with `normalizes`
  };

  static Traits TraitsOf(const CrossEntropy& loss) {
    const int64_t scores = loss.normalizes ? loss.score_count() : 0;
    Traits traits;
    traits.workspace_bytes = loss.label_count() * sizeof(int64_t) +
                             (loss.label_count() + 1 + scores) * sizeof(float);
    traits.backward_scratch_bytes = scores * sizeof(float);
    return traits;
  }

  Kept KeptIn(const Tensors& t) const {
    Kept kept;
    kept.at = static_cast<int64_t*>(t.workspace);
    kept.weights = reinterpret_cast<float*>(kept.at + l_.label_count());
    kept.divisor = kept.weights + l_.label_count();
    kept.log_p = kept.divisor + 1;
    return kept;
  }

  // Fills what is kept of label `i`.
  absl::Status Look(const Tensors& t, int64_t i, const Kept& kept) const {
    const int64_t label = l_.narrow_labels
                              ? static_cast<const int32_t*>(t.inputs[1])[i]
                              : static_cast<const int64_t*>(t.inputs[1])[i];
    if (label == l_.ignored) {
      kept.at[i] = kIgnored;
      kept.weights[i] = 0;
      return absl::OkStatus();
    }
    if (label < 0 || label >= l_.shape.n) {
      return absl::InvalidArgumentError(
          absl::StrCat("label ", label, ", number ", i, ", is none of ",
                       l_.shape.n, " classes"));
    }
    const int64_t inner = l_.shape.inner;
    kept.at[i] = (i / inner * l_.shape.n + label) * inner + i % inner;
    kept.weights[i] = t.in(2) != nullptr ? t.in(2)[label] : 1.0f;
    return absl::OkStatus();
  }

  void AddLossGradient(const Kept& kept, const float* dy, float* dx) const {
    const bool each = l_.reduction == LossReduction::kNone;
    for (int64_t i = 0; i < l_.label_count(); ++i) {
      if (kept.at[i] == kIgnored) continue;
      dx[kept.at[i]] -= kept.weights[i] * dy[each ? i : 0] / *kept.divisor;
    }
  }

  const CrossEntropy l_;
};

absl::StatusOr<LossReduction> ReductionOf(const Node& node) {
  const std::string name = node.String("reduction", "mean");
  if (name == "none") return LossReduction::kNone;
  if (name == "sum") return LossReduction::kSum;
  if (name == "mean") return LossReduction::kMean;
  return absl::InvalidArgumentError(absl::StrCat(
      "reduction is \"", name, "\"; it must be none, sum or mean"));
}

absl::Status CheckShapes(const OpSpec& spec) {
  const Dims& scores = spec.input(0).dims;
  const Dims& labels = spec.input(1).dims;
  Dims wanted = scores;
  if (scores.size() >= 2) wanted.erase(wanted.begin() + 1);
  if (scores.size() < 2 || labels != wanted) {
    return absl::InvalidArgumentError(absl::StrCat(
        "scores ", DimsToString(scores), " and labels ", DimsToString(labels),
        "; they must be [N,classes,...] and [N,...]"));
  }
  const TensorType& weights = spec.input(2);
  if (weights.present && weights.dims != Dims{scores[1]}) {
    return absl::InvalidArgumentError(
        absl::StrCat("the weights are ", DimsToString(weights.dims),
                     "; there are ", scores[1], " classes"));
  }
  return absl::OkStatus();
}

// The loss of scores [N, classes, ...] with labels [N, ...], and perhaps a
// weight for each class: minus the log probability of each label. The scores
// are log probabilities, or with `normalizes` become ones by a softmax, which
// are output 1. No gradient flows to the labels and the weights. A label that
// is "ignore_index" costs nothing; other ones that are out of range end the
// step.
absl::StatusOr<std::unique_ptr<Op>> MakeCrossEntropy(const OpSpec& spec,
                                                     bool normalizes) {
  const DType labels = spec.input(1).dtype;
  if (spec.input(0).dtype != DType::kFloat32 ||
      (labels != DType::kInt64 && labels != DType::kInt32)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "scores are ", DTypeName(spec.input(0).dtype), " and labels ",
        DTypeName(labels), "; they must be float32 and int32 or int64"));
  }
  SYNCLINE_RETURN_IF_ERROR(CheckShapes(spec));
  CrossEntropy loss;
  SYNCLINE_ASSIGN_OR_RETURN(loss.reduction, ReductionOf(*spec.node));
  const absl::Span<const int64_t> scores(spec.input(0).dims);
  loss.shape.outer = scores[0];
  loss.shape.n = scores[1];
  loss.shape.inner = ElementCount(scores.subspan(2));
  loss.normalizes = normalizes;
  if (spec.node->Has("ignore_index")) {
    loss.ignored = spec.node->Int("ignore_index", 0);
  }
  loss.narrow_labels = labels == DType::kInt32;
  return std::make_unique<CrossEntropyOp>(loss);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeSoftmaxCrossEntropyLoss(
    const OpSpec& spec) {
  return MakeCrossEntropy(spec, /*normalizes=*/true);
}

absl::StatusOr<std::unique_ptr<Op>> MakeNegativeLogLikelihoodLoss(
    const OpSpec& spec) {
  return MakeCrossEntropy(spec, /*normalizes=*/false);
}

}  // namespace syncline::worker
