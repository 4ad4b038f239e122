#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/report.h"
#include "kernels/cuda/walk/split_lines.h"
#include "kernels/device/class_loss_kernels.h"

namespace syncline {
namespace {

using cuda::Global;
using cuda::OnDevice;

constexpr int64_t kIgnored = -1;

template <typename Label>
struct FindScore {
  ClassLoss s;
  bool has_weights;
  Global<const Label> labels;
  Global<const float> class_weights;
  Global<const float> log_p;
  Global<int64_t> at;
  Global<float> weights;
  Global<float> loss;  // with kNone
  cuda::Reporter errors;

  SYNCLINE_DEVICE void operator()(int64_t i) const {
    const int64_t label = static_cast<Label>(labels[i]);
    const int64_t inner = s.scores.inner;
    const bool is_ignored = s.ignores && label == s.ignored;
    const bool is_class = label >= 0 && label < s.scores.n;
    if (!is_ignored && !is_class) errors.Report(/*kind=*/0, i, label);
    int64_t place = kIgnored;
    float weight = 0;
    if (!is_ignored && is_class) {
      place = (i / inner * s.scores.n + label) * inner + i % inner;
      weight = has_weights ? static_cast<float>(class_weights[label]) : 1.0f;
    }
    at[i] = place;
    weights[i] = weight;
    if (s.reduction == LossReduction::kNone) {
      loss[i] = place == kIgnored ? 0.0f : -weight * log_p[place];
    }
  }
};

// The one line is all labels.
struct SumOfLabels {
  using Value = double;
  struct Place {};

  SYNCLINE_DEVICE double neutral() const { return 0; }
  SYNCLINE_DEVICE Place At(int64_t) const { return {}; }
  SYNCLINE_DEVICE double Join(double a, double b) const { return a + b; }
};

struct SumWeights : SumOfLabels {
  bool is_mean;
  Global<const float> weights;
  Global<float> divisor;

  SYNCLINE_DEVICE double TermAt(const Place&, int64_t i) const {
    return weights[i];
  }
  SYNCLINE_DEVICE void Finish(const Place&, int64_t, double sum) const {
    divisor[0] = is_mean ? static_cast<float>(sum) : 1.0f;
  }
};

// After SumWeights.
struct SumCosts : SumOfLabels {
  Global<const float> log_p;
  Global<const int64_t> at;
  Global<const float> weights;
  Global<const float> divisor;
  Global<float> loss;

  SYNCLINE_DEVICE double TermAt(const Place&, int64_t i) const {
    const int64_t place = at[i];
    return place == kIgnored ? 0.0f : -weights[i] * log_p[place];
  }
  SYNCLINE_DEVICE void Finish(const Place&, int64_t, double sum) const {
    loss[0] = static_cast<float>(sum / divisor[0]);
  }
};

template <typename Label>
void ForwardOf(Stream& stream, const ClassLoss& s, const float* log_p,
               const void* labels, const float* class_weights,
               const ClassLossKept& kept, float* loss,
               const ErrorSlot& errors) {
  cuda::LaunchElements(
      stream, s.label_count(),
      FindScore<Label>{s, class_weights != nullptr,
                       OnDevice(static_cast<const Label*>(labels)),
                       OnDevice(class_weights), OnDevice(log_p),
                       OnDevice(kept.at), OnDevice(kept.weights),
                       OnDevice(loss), cuda::OnDevice(errors)});
  const int64_t* const at = kept.at;
  const float* const weights = kept.weights;
  cuda::FoldLines(stream, /*lines=*/1, s.label_count(), /*are_adjacent=*/false,
                  SumWeights{{},
                             s.reduction == LossReduction::kMean,
                             OnDevice(weights),
                             OnDevice(kept.divisor)});
  if (s.reduction == LossReduction::kNone) return;
  const float* const divisor = kept.divisor;
  cuda::FoldLines(stream, /*lines=*/1, s.label_count(), /*are_adjacent=*/false,
                  SumCosts{{},
                           OnDevice(log_p),
                           OnDevice(at),
                           OnDevice(weights),
                           OnDevice(divisor),
                           OnDevice(loss)});
}

void Forward(Stream& stream, const ClassLoss& s, const float* log_p,
             const void* labels, const float* class_weights,
             const ClassLossKept& kept, float* loss, const ErrorSlot& errors) {
  if (s.label_type == DType::kInt32) {
    ForwardOf<int32_t>(stream, s, log_p, labels, class_weights, kept, loss,
                       errors);
  } else {
    ForwardOf<int64_t>(stream, s, log_p, labels, class_weights, kept, loss,
                       errors);
  }
}

// No two labels have the same score.
void AddGradient(Stream& stream, const ClassLoss& s, const ClassLossKept& kept,
                 const float* dy, float* dlog_p) {
  const bool each = s.reduction == LossReduction::kNone;
  const int64_t* const at = kept.at;
  const float* const weights = kept.weights;
  const float* const divisor = kept.divisor;
  cuda::LaunchElements(stream, s.label_count(),
                       [each, at = OnDevice(at), weights = OnDevice(weights),
                        divisor = OnDevice(divisor), dy = OnDevice(dy),
                        dlog_p = OnDevice(dlog_p)] SYNCLINE_DEVICE(int64_t i) {
                         const int64_t place = at[i];
                         if (place == kIgnored) return;
                         dlog_p[place] +=
                             -(weights[i] * dy[each ? i : 0] / divisor[0]);
                       });
}

}  // namespace

const ClassLossKernels& CudaClassLossKernels() {
  static constexpr ClassLossKernels kKernels = {.forward = Forward,
                                                .add_gradient = AddGradient};
  return kKernels;
}

}  // namespace syncline
