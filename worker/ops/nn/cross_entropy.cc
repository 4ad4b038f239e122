#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/device/class_loss_kernels.h"
#include "kernels/device/kernel_table.h"
#include "kernels/device/softmax_kernels.h"
#include "worker/ops/op.h"

namespace syncline::worker {
namespace {

// The loss, and with `normalizes` the softmax before it.
class CrossEntropyOp : public Op {
 public:
  CrossEntropyOp(const ClassLoss& loss, bool normalizes,
                 const ClassLossKernels& kernels,
                 const SoftmaxKernels::Pair& log_softmax)
      : Op(TraitsOf(loss, normalizes)),
        l_(loss),
        normalizes_(normalizes),
        kernels_(kernels),
        log_softmax_(log_softmax) {}

  absl::Status Forward(const Tensors& t) override {
    const ClassLossKept kept = KeptIn(t);
    const float* log_p = t.in(0);
    if (normalizes_) {
      log_softmax_.forward(*t.stream, l_.scores, t.in(0), LogPIn(t));
      log_p = LogPIn(t);
      if (t.out(1) != nullptr) t.stream->Copy(t.out(1), log_p, ScoreBytes());
    }
    kernels_.forward(*t.stream, l_, log_p, t.inputs[1], t.in(2), kept, t.out(0),
                     t.errors);
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    const ClassLossKept kept = KeptIn(t);
    if (!normalizes_) {
      if (!g.accumulate(0)) t.stream->Clear(g.in(0), ScoreBytes());
      kernels_.add_gradient(*t.stream, l_, kept, g.out(), g.in(0));
      return absl::OkStatus();
    }
    float* const dlog_p = static_cast<float*>(t.scratch);
    const bool is_read = g.outputs.size() > 1 && g.outputs[1] != nullptr;
    if (is_read) {
      t.stream->Copy(dlog_p, g.outputs[1], ScoreBytes());
    } else {
      t.stream->Clear(dlog_p, ScoreBytes());
    }
    if (g.out() != nullptr) {
      kernels_.add_gradient(*t.stream, l_, kept, g.out(), dlog_p);
    }
    log_softmax_.backward(*t.stream, l_.scores, LogPIn(t), dlog_p,
                          g.accumulate(0), g.in(0));
    return absl::OkStatus();
  }

  absl::Status Explain(const DataError& error) const override {
    return absl::InvalidArgumentError(
        absl::StrCat("label ", error.value, ", number ", error.position,
                     ", is none of ", l_.scores.n, " classes"));
  }

 private:
  // The workspace has what is kept of the loss, and with `normalizes` the log
  // probabilities behind it.
  static Traits TraitsOf(const ClassLoss& loss, bool normalizes) {
    const int64_t scores = normalizes ? loss.score_count() : 0;
    Traits traits;
    traits.workspace_bytes = loss.label_count() * sizeof(int64_t) +
                             (loss.label_count() + 1 + scores) * sizeof(float);
    traits.backward_scratch_bytes = scores * sizeof(float);
    return traits;
  }
  ClassLossKept KeptIn(const Tensors& t) const {
    ClassLossKept kept;
    kept.at = static_cast<int64_t*>(t.workspace);
    kept.weights = reinterpret_cast<float*>(kept.at + l_.label_count());
    kept.divisor = kept.weights + l_.label_count();
    return kept;
  }
  float* LogPIn(const Tensors& t) const { return KeptIn(t).divisor + 1; }
  size_t ScoreBytes() const { return l_.score_count() * sizeof(float); }

  const ClassLoss l_;
  const bool normalizes_;
  const ClassLossKernels kernels_;
  const SoftmaxKernels::Pair log_softmax_;
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
  ClassLoss loss;
  SYNCLINE_ASSIGN_OR_RETURN(loss.reduction, ReductionOf(*spec.node));
  const absl::Span<const int64_t> scores(spec.input(0).dims);
  loss.scores.outer = scores[0];
  loss.scores.n = scores[1];
  loss.scores.inner = ElementCount(scores.subspan(2));
  loss.ignores = spec.node->Has("ignore_index");
  loss.ignored = spec.node->Int("ignore_index", 0);
  loss.label_type = labels;
  const ClassLossKernels* const kernels = spec.kernels().class_loss;
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(kernels));
  SYNCLINE_RETURN_IF_ERROR(
      spec.RequireKernels(kernels->forward, kernels->add_gradient));
  SoftmaxKernels::Pair log_softmax;
  if (normalizes) {
    SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(spec.kernels().softmax));
    log_softmax = spec.kernels().softmax->log_softmax;
    SYNCLINE_RETURN_IF_ERROR(
        spec.RequireKernels(log_softmax.forward, log_softmax.backward));
  }
  return std::make_unique<CrossEntropyOp>(loss, normalizes, *kernels,
                                          log_softmax);
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
