#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/report.h"
#include "kernels/device/class_loss_kernels.h"

namespace syncline {
namespace {

constexpr int64_t kIgnored = -1;

// Where label `i` is among the scores; with its class, which is -1 likewise.
struct Place {
  int64_t at = kIgnored;
  int64_t label = kIgnored;
};

Place PlaceOf(const ClassLoss& s, const void* labels, int64_t i,
              const ErrorSlot& errors) {
  const int64_t label = s.label_type == DType::kInt32
                            ? static_cast<const int32_t*>(labels)[i]
                            : static_cast<const int64_t*>(labels)[i];
  if (s.ignores && label == s.ignored) return {};
  if (label < 0 || label >= s.scores.n) {
    Report(errors, /*kind=*/0, i, label);
    return {};
  }
  const int64_t inner = s.scores.inner;
  return {(i / inner * s.scores.n + label) * inner + i % inner, label};
}

void Forward(Stream& stream, const ClassLoss& s, const float* log_p,
             const void* labels, const float* class_weights,
             const ClassLossKept& kept, float* loss, const ErrorSlot& errors) {
  const CpuKernel kernel(stream);
  double sum = 0;
  double weights = 0;
  for (int64_t i = 0; i < s.label_count(); ++i) {
    const Place place = PlaceOf(s, labels, i, errors);
    const bool is_ignored = place.at == kIgnored;
    kept.at[i] = place.at;
    kept.weights[i] = is_ignored                 ? 0.0f
                      : class_weights == nullptr ? 1.0f
                                                 : class_weights[place.label];
    const float cost = is_ignored ? 0.0f : -kept.weights[i] * log_p[place.at];
    if (s.reduction == LossReduction::kNone) loss[i] = cost;
    sum += cost;
    weights += kept.weights[i];
  }
  *kept.divisor =
      s.reduction == LossReduction::kMean ? static_cast<float>(weights) : 1.0f;
  if (s.reduction != LossReduction::kNone) {
    loss[0] = static_cast<float>(sum / *kept.divisor);
  }
}

void AddGradient(Stream& stream, const ClassLoss& s, const ClassLossKept& kept,
                 const float* dy, float* dlog_p) {
  const CpuKernel kernel(stream);
  const bool each = s.reduction == LossReduction::kNone;
  for (int64_t i = 0; i < s.label_count(); ++i) {
    if (kept.at[i] == kIgnored) continue;
    dlog_p[kept.at[i]] -= kept.weights[i] * dy[each ? i : 0] / *kept.divisor;
  }
}

}  // namespace

const ClassLossKernels& CpuClassLossKernels() {
  static constexpr ClassLossKernels kKernels = {.forward = Forward,
                                                .add_gradient = AddGradient};
  return kKernels;
}

}  // namespace syncline
