#ifndef SYNCLINE_KERNELS_ELEMENTWISE_POINTWISE_H_
#define SYNCLINE_KERNELS_ELEMENTWISE_POINTWISE_H_

// Plain functions of n elements and their gradients. y may be x, and dx may be
// dy. Gradients overwrite dx, or add to it with `accumulate`. NaN stays NaN.

#include <cstdint>

namespace syncline {

void Exp(int64_t n, const float* x, float* y);
void Negate(int64_t n, const float* x, float* y);
void SquareRoot(int64_t n, const float* x, float* y);  // NaN below 0
void ErrorFunction(int64_t n, const float* x, float* y);

// From the output:
void ExpGradient(int64_t n, const float* y, const float* dy, bool accumulate,
                 float* dx);
void SquareRootGradient(int64_t n, const float* y, const float* dy,
                        bool accumulate, float* dx);
// `unused` is not read.
void NegateGradient(int64_t n, const float* unused, const float* dy,
                    bool accumulate, float* dx);
// From the input:
void ErrorFunctionGradient(int64_t n, const float* x, const float* dy,
                           bool accumulate, float* dx);

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_ELEMENTWISE_POINTWISE_H_
