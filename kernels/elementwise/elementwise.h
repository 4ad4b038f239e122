#ifndef SYNCLINE_KERNELS_ELEMENTWISE_ELEMENTWISE_H_
#define SYNCLINE_KERNELS_ELEMENTWISE_ELEMENTWISE_H_

// Sums with broadcasting, and their gradients: the gradient of a repeated
// operand is the sum over where it was repeated, whose error does not grow with
// the number of repetitions (row_sums.h). float32, dense row-major. Thread-
// compatible.

#include "kernels/elementwise/broadcast.h"

namespace syncline {

// y = a + b. y may be a or b where that has the result's shape.
void Add(const Broadcast& s, const float* a, const float* b, float* y);

// y = scale * b, repeated over the result; a is not read.
void Spread(const Broadcast& s, float scale, const float* b, float* y);

// The gradient of scale * a, or of scale * b, under a sum: scale * dy, into
// `dx` of that operand's shape: overwritten, or added to with `accumulate`. dx
// may be dy where the operand has the result's shape.
void AddGradient(const Broadcast& s, Side side, float scale, const float* dy,
                 bool accumulate, float* dx);

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_ELEMENTWISE_ELEMENTWISE_H_
