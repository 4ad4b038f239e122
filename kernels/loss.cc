#include "kernels/loss.h"

#include <algorithm>
#include <cmath>

#include "kernels/elementwise/loop.h"
#include "kernels/elementwise/vector_math.h"

namespace syncline {

double SoftmaxCrossEntropy(int64_t rows, int64_t classes, const float* x,
                           const float* labels, float* dx, float weight) {
  double loss = 0;
  for (int64_t r = 0; r < rows; ++r) {
    const float* const in = x + r * classes;
    const int64_t label = static_cast<int64_t>(labels[r]);
    if (label < 0) {
      if (dx != nullptr) std::fill_n(dx + r * classes, classes, 0.0f);
      continue;
    }
    const float at_label = in[label];
    const float max = MaximumOf(classes, [=](int64_t i) { return in[i]; });
    if (dx == nullptr) {
      const float sum =
          SumOf(classes, [=](int64_t i) { return Exp(in[i] - max); });
      loss += std::log(sum) + (max - at_label);
      continue;
    }
    float* const out = dx + r * classes;
    Emit(classes, /*accumulate=*/false, out,
         [=](int64_t i) { return Exp(in[i] - max); });
    const float sum = SumOf(classes, [=](int64_t i) { return out[i]; });
    loss += std::log(sum) + (max - at_label);
    const float scale = weight / sum;
    for (int64_t i = 0; i < classes; ++i) out[i] *= scale;
    out[label] -= weight;
  }
  return loss * weight;
}

double SigmoidCrossEntropy(int64_t rows, const float* x, const float* labels,
                           float* dx) {
  double loss = 0;
  for (int64_t r = 0; r < rows; ++r) {
    // log(1 + e^x) = max(x, 0) + log(1 + e^-|x|): no overflow.
    loss += std::max(x[r], 0.0f) - labels[r] * x[r] +
            std::log1p(Exp(-std::fabs(x[r])));
  }
  if (dx != nullptr) {
    Emit(rows, /*accumulate=*/false, dx,
         [=](int64_t r) { return Logistic(x[r]) - labels[r]; });
  }
  return loss;
}

double MeanSquaredError(int64_t rows, int64_t width, const float* x,
                        const float* targets, float* dx) {
  double loss = 0;
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t at = r * width;
    loss += SumOf(width,
                  [=](int64_t i) {
                    const float difference = x[at + i] - targets[at + i];
                    return difference * difference;
                  }) /
            static_cast<double>(width);
  }
  if (dx != nullptr) {
    const float scale = 2.0f / static_cast<float>(width);
    Emit(rows * width, /*accumulate=*/false, dx,
         [=](int64_t i) { return scale * (x[i] - targets[i]); });
  }
  return loss;
}

}  // namespace syncline
