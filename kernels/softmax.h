#ifndef SYNCLINE_KERNELS_SOFTMAX_H_
#define SYNCLINE_KERNELS_SOFTMAX_H_

#include <cstdint>

namespace syncline {

// An array seen as [outer, n, inner], normalised along the middle.
struct SoftmaxShape {
  int64_t outer = 1, n = 1, inner = 1;
};

// y = e^x / sum(e^x), shifted by the maximum so that nothing overflows. y may
// be x.
void Softmax(const SoftmaxShape& s, const float* x, float* y);
// y = x - log(sum(e^x)). y may be x.
void LogSoftmax(const SoftmaxShape& s, const float* x, float* y);

// From the output; dx may be dy. Overwrite dx, or add with `accumulate`.
void SoftmaxGradient(const SoftmaxShape& s, const float* y, const float* dy,
                     bool accumulate, float* dx);
void LogSoftmaxGradient(const SoftmaxShape& s, const float* y, const float* dy,
                        bool accumulate, float* dx);

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_SOFTMAX_H_
