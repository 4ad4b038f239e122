#ifndef SYNCLINE_KERNELS_LOSS_H_
#define SYNCLINE_KERNELS_LOSS_H_

// Losses fused with their gradients. Each returns the loss summed over `rows`
// samples, added up in float64 in row order, and writes the gradient of that
// sum to `dx` (same shape as x, may be x) unless it is null.

#include <cstdint>

namespace syncline {

// x [rows, classes] logits; labels [rows], whole numbers in [0, classes), or
// negative: that row counts for nothing, its gradient is 0.
//   weight * sum over rows of log(sum(e^x)) - x[label]
double SoftmaxCrossEntropy(int64_t rows, int64_t classes, const float* x,
                           const float* labels, float* dx, float weight = 1);

// x [rows] logits; labels [rows], 0 or 1.
//   sum over rows of log(1 + e^x) - label * x
double SigmoidCrossEntropy(int64_t rows, const float* x, const float* labels,
                           float* dx);

// x and targets [rows, width].
//   sum over rows of the mean over the row of (x - target)^2
double MeanSquaredError(int64_t rows, int64_t width, const float* x,
                        const float* targets, float* dx);

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_LOSS_H_
