#ifndef SYNCLINE_KERNELS_OPTIMIZER_LAMB_H_
#define SYNCLINE_KERNELS_OPTIMIZER_LAMB_H_

#include <cstddef>
#include <vector>

#include "absl/types/span.h"
#include "kernels/optimizer/optimizer.h"

namespace syncline {

// LAMB's step is two passes over memory, because it is scaled by norms of the
// whole tensor, which may lie on several machines:
//
//   g = clip(gradient * scale)
//   m = b1 * m + (1 - b1) * g             s = b2 * s + (1 - b2) * g^2
//   u = (m / (1 - b1^t)) / (sqrt(s / (1 - b2^t)) + eps) + decay * value
//   -- norms of value and u over the tensor --
//   value -= lr * (|value| / |u|) * u
// The ratio is 1 where either norm is 0.
//
// Slots are kAdam's: first and second moment. NaN stays NaN.
// Source: You et al., ICLR 2020, algorithm 2, with the identity for phi.

// Squared L2 norms.
struct LambNorms {
  double value = 0;
  double update = 0;
};

// The first pass: moves the moments on and adds to `norms`, in fp64 and in
// element order: cutting a range and passing the sums on gives the same bits.
// Ranges are as for ApplyOptimizer. step.learning_rate is not read.
void AdvanceLamb(const OptimizerParams& params, const OptimizerStep& step,
                 const float* gradient, const float* value, float* first,
                 float* second, size_t count, LambNorms* norms);

// `norms` of a whole tensor.
double LambTrustRatio(const LambNorms& norms);
// By tensor; `norms` has two for each, of its value and of its update.
std::vector<double> LambTrustRatios(absl::Span<const double> norms);

// The second pass, with the same `step.t`; the gradient is not needed again.
void ApplyLamb(const OptimizerParams& params, const OptimizerStep& step,
               double trust_ratio, float* value, const float* first,
               const float* second, size_t count);

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_OPTIMIZER_LAMB_H_
