#include "kernels/loss.h"

#include <algorithm>

#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/device/loss_kernels.h"

namespace syncline {
namespace {

// Each sample's weight follows from how many of its positions count.
double SumOfCounted(const LossShape& s, const float* scores,
                    const float* labels, float* gradient) {
  double sum = 0;
  for (int64_t sample = 0; sample < s.samples; ++sample) {
    const int64_t counted = std::count_if(
        labels, labels + s.positions, [](float label) { return !(label < 0); });
    const float weight =
        1.0f / static_cast<float>(std::max<int64_t>(counted, 1));
    sum += SoftmaxCrossEntropy(s.positions, s.width, scores, labels, gradient,
                               weight);
    scores += s.positions * s.width;
    labels += s.positions;
    if (gradient != nullptr) gradient += s.positions * s.width;
  }
  return sum;
}

void SoftmaxLoss(Stream& stream, const LossShape& s, const float* scores,
                 const float* labels, float* gradient, double* loss) {
  const CpuKernel kernel(stream);
  *loss = s.ignores
              ? SumOfCounted(s, scores, labels, gradient)
              : SoftmaxCrossEntropy(s.samples * s.positions, s.width, scores,
                                    labels, gradient, 1.0f / s.positions);
}

void SigmoidLoss(Stream& stream, const LossShape& s, const float* scores,
                 const float* labels, float* gradient, double* loss) {
  const CpuKernel kernel(stream);
  *loss = SigmoidCrossEntropy(s.samples, scores, labels, gradient);
}

void SquareLoss(Stream& stream, const LossShape& s, const float* scores,
                const float* targets, float* gradient, double* loss) {
  const CpuKernel kernel(stream);
  *loss = MeanSquaredError(s.samples, s.width, scores, targets, gradient);
}

}  // namespace

const LossKernels& CpuLossKernels() {
  static constexpr LossKernels kKernels = {.softmax_cross_entropy = SoftmaxLoss,
                                           .sigmoid_cross_entropy = SigmoidLoss,
                                           .mean_squared_error = SquareLoss};
  return kKernels;
}

}  // namespace syncline
