#include <cmath>

#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/walk/sum_of_lines.h"
#include "kernels/device/loss_kernels.h"
#include "kernels/elementwise/vector_math.h"

namespace syncline {
namespace {

using cuda::Global;
using cuda::OnDevice;

// A line is a position: its loss, and the gradient of its scores.
struct SoftmaxBody {
  LossShape s;
  bool wants_gradient;
  Global<const float> scores;
  Global<const float> labels;
  Global<float> gradient;

  // One over the positions of the sample that count.
  template <typename Group>
  SYNCLINE_DEVICE float WeightOf(const Group& group, int64_t position) const {
    if (!s.ignores) return 1.0f / static_cast<float>(s.positions);
    const int64_t first = position - position % s.positions;
    const bool is_there = position < s.samples * s.positions;
    int counted = 0;
    for (int64_t i = group.rank(); is_there && i < s.positions;
         i += group.size()) {
      counted += labels[first + i] < 0 ? 0 : 1;
    }
    counted = group.Fold(counted, cuda::Plus());
    return 1.0f / static_cast<float>(counted > 1 ? counted : 1);
  }

  template <typename Group>
  SYNCLINE_DEVICE double operator()(const Group& group, int64_t position,
                                    int64_t n) const {
    const float weight = WeightOf(group, position);
    const int64_t begin = position * s.width;
    int64_t label = -1;
    if (n > 0)
      label = static_cast<int64_t>(static_cast<float>(labels[position]));
    float largest = -INFINITY;
    float at_label = 0;  // in the thread that has it
    for (int64_t i = group.rank(); i < n; i += group.size()) {
      const float score = scores[begin + i];
      largest = cuda::Larger()(largest, score);
      if (i == label) at_label = score;
    }
    largest = group.Fold(largest, cuda::Larger());
    at_label = group.Fold(at_label, cuda::Plus());
    float sum = 0;
    for (int64_t i = group.rank(); i < n; i += group.size()) {
      sum += Exp(scores[begin + i] - largest);
    }
    sum = group.Fold(sum, cuda::Plus());
    if (n == 0) return 0;
    if (wants_gradient) {
      const float scale = label < 0 ? 0.0f : weight / sum;
      for (int64_t i = group.rank(); i < n; i += group.size()) {
        const float share =
            label < 0 ? 0.0f : Exp(scores[begin + i] - largest) * scale;
        gradient[begin + i] = i == label ? share - weight : share;
      }
    }
    if (group.rank() != 0 || label < 0) return 0;
    return static_cast<double>(weight) * (std::log(sum) + (largest - at_label));
  }
};

void SoftmaxLoss(Stream& stream, const LossShape& s, const float* scores,
                 const float* labels, float* gradient, double* loss) {
  cuda::SumOfLines(stream, s.samples * s.positions, s.width,
                   SoftmaxBody{s, gradient != nullptr, OnDevice(scores),
                               OnDevice(labels), OnDevice(gradient)},
                   /*scale=*/1, loss);
}

struct SigmoidBody {
  bool wants_gradient;
  Global<const float> scores;
  Global<const float> labels;
  Global<float> gradient;

  template <typename Group>
  SYNCLINE_DEVICE double operator()(const Group&, int64_t i, int64_t n) const {
    if (n == 0) return 0;
    const float x = scores[i];
    const float label = labels[i];
    if (wants_gradient) gradient[i] = Logistic(x) - label;
    // log(1 + e^x) = max(x, 0) + log(1 + e^-|x|): no overflow.
    return (x < 0 ? 0.0f : x) - label * x + std::log1p(Exp(-std::fabs(x)));
  }
};

void SigmoidLoss(Stream& stream, const LossShape& s, const float* scores,
                 const float* labels, float* gradient, double* loss) {
  cuda::SumOfLines(stream, s.samples, /*n=*/1,
                   SigmoidBody{gradient != nullptr, OnDevice(scores),
                               OnDevice(labels), OnDevice(gradient)},
                   /*scale=*/1, loss);
}

struct SquareBody {
  int64_t width;
  bool wants_gradient;
  Global<const float> scores;
  Global<const float> targets;
  Global<float> gradient;

  template <typename Group>
  SYNCLINE_DEVICE double operator()(const Group& group, int64_t sample,
                                    int64_t n) const {
    const float scale = 2.0f / static_cast<float>(width);
    double sum = 0;
    for (int64_t i = group.rank(); i < n; i += group.size()) {
      const int64_t at = sample * width + i;
      const float difference = scores[at] - targets[at];
      sum += static_cast<double>(difference * difference);
      if (wants_gradient) gradient[at] = scale * difference;
    }
    return sum;  // each thread has a part
  }
};

void SquareLoss(Stream& stream, const LossShape& s, const float* scores,
                const float* targets, float* gradient, double* loss) {
  cuda::SumOfLines(stream, s.samples, s.width,
                   SquareBody{s.width, gradient != nullptr, OnDevice(scores),
                              OnDevice(targets), OnDevice(gradient)},
                   /*scale=*/1.0 / static_cast<double>(s.width), loss);
}

}  // namespace

const LossKernels& CudaLossKernels() {
  static constexpr LossKernels kKernels = {.softmax_cross_entropy = SoftmaxLoss,
                                           .sigmoid_cross_entropy = SigmoidLoss,
                                           .mean_squared_error = SquareLoss};
  return kKernels;
}

}  // namespace syncline
