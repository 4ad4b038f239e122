#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/report.h"
#include "kernels/cuda/walk/lines.h"
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
struct SumBody {
  bool is_mean;
  bool is_each;
  Global<const float> log_p;
  Global<const int64_t> at;
  Global<const float> weights;
  Global<float> divisor;
  Global<float> loss;

  template <typename Group>
  SYNCLINE_DEVICE void operator()(const Group& group, int64_t,
                                  int64_t labels) const {
    double costs = 0;
    double weight = 0;
    for (int64_t i = group.rank(); i < labels; i += group.size()) {
      const int64_t place = at[i];
      const float w = weights[i];
      if (place != kIgnored) costs += -w * log_p[place];
      weight += w;
    }
    costs = group.Fold(costs, cuda::Plus());
    weight = group.Fold(weight, cuda::Plus());
    if (group.rank() != 0) return;
    const float by = is_mean ? static_cast<float>(weight) : 1.0f;
    divisor[0] = by;
    if (!is_each) loss[0] = static_cast<float>(costs / by);
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
  cuda::LaunchGroups<cuda::BlockGroup>(
      stream, /*lines=*/1, s.label_count(),
      SumBody{s.reduction == LossReduction::kMean,
              s.reduction == LossReduction::kNone, OnDevice(log_p),
              OnDevice(at), OnDevice(weights), OnDevice(kept.divisor),
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
