#ifndef SYNCLINE_KERNELS_ELEMENTWISE_POWER_H_
#define SYNCLINE_KERNELS_ELEMENTWISE_POWER_H_

// a^b with broadcasting, and its gradients, as
// kernels/elementwise/elementwise.h has those of arithmetic. A single exponent
// of -1, 1/2, 1, 2 or 3 costs no more than arithmetic does; others cost a call
// of libm's pow for each element.

#include "kernels/elementwise/broadcast.h"

namespace syncline {

// NaN where a < 0 and b is no whole number. y may be a or b where that has the
// result's shape.
void Power(const Broadcast& s, const float* a, const float* b, float* y);

// dy * b * a^(b - 1), summed over where a was repeated. da may be dy where a
// has the result's shape.
void PowerGradientA(const Broadcast& s, const float* a, const float* b,
                    const float* dy, bool accumulate, float* da);
// dy * y * log(a), likewise; 0 where a is 0.
void PowerGradientB(const Broadcast& s, const float* a, const float* y,
                    const float* dy, bool accumulate, float* db);

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_ELEMENTWISE_POWER_H_
