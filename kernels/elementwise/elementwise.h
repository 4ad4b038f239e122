#ifndef SYNCLINE_KERNELS_ELEMENTWISE_ELEMENTWISE_H_
#define SYNCLINE_KERNELS_ELEMENTWISE_ELEMENTWISE_H_

// Elementwise arithmetic with broadcasting, and its gradients: the gradient of
// a repeated operand is the sum over where it was repeated, whose error does
// not grow with the number of repetitions (row_sums.h). float32, dense
// row-major. Thread-compatible.

#include "kernels/elementwise/broadcast.h"

namespace syncline {

// y = a op b. y may be a or b where that has the result's shape.
void Add(const Broadcast& s, const float* a, const float* b, float* y);
void Subtract(const Broadcast& s, const float* a, const float* b, float* y);
void Multiply(const Broadcast& s, const float* a, const float* b, float* y);
void Divide(const Broadcast& s, const float* a, const float* b, float* y);

// y = scale * b, repeated over the result; a is not read.
void Spread(const Broadcast& s, float scale, const float* b, float* y);

// Which operand a gradient is for.
enum class Side { kA, kB };

// Gradients of the sum of dy * (a op b) for one operand, into `dx` of that
// operand's shape: overwritten, or added to with `accumulate`. dx may be dy
// where the operand has the result's shape.
//
// For Add: dy. With `scale` -1, Subtract's b.
void AddGradient(const Broadcast& s, Side side, float scale, const float* dy,
                 bool accumulate, float* dx);
// For Multiply: dy * other.
void MultiplyGradient(const Broadcast& s, Side side, const float* other,
                      const float* dy, bool accumulate, float* dx);
// For Divide's a: dy / b.
void DivideGradientA(const Broadcast& s, const float* b, const float* dy,
                     bool accumulate, float* da);
// For Divide's b: -dy * y / b, where y = a / b.
void DivideGradientB(const Broadcast& s, const float* b, const float* y,
                     const float* dy, bool accumulate, float* db);

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_ELEMENTWISE_ELEMENTWISE_H_
