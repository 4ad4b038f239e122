#ifndef SYNCLINE_KERNELS_ELEMENTWISE_SCALAR_FUNCTION_H_
#define SYNCLINE_KERNELS_ELEMENTWISE_SCALAR_FUNCTION_H_

// Activations with settings, as ONNX defines them, and their derivatives from
// the input: for loops over elements of operators and of recurrent cells.
// Where a function has no derivative, that of one side is taken. NaN stays NaN.

#include <cmath>

#include "kernels/elementwise/vector_math.h"

namespace syncline::scalar {

// Clevert et al., ICLR 2016.
struct Elu {
  float alpha;
  float Value(float x) const { return x < 0 ? alpha * ExpMinusOne(x) : x; }
  float Derivative(float x) const { return x < 0 ? alpha * Exp(x) : 1.0f; }
};

struct HardSigmoid {
  float alpha;
  float beta;
  float Value(float x) const {
    const float line = alpha * x + beta;
    return line < 0 ? 0.0f : (line > 1 ? 1.0f : line);
  }
  float Derivative(float x) const {
    const float line = alpha * x + beta;
    return line > 0 && line < 1 ? alpha : 0.0f;
  }
};

struct LeakyRelu {
  float alpha;
  float Value(float x) const { return x < 0 ? alpha * x : x; }
  float Derivative(float x) const { return x < 0 ? alpha : 1.0f; }
};

struct Softplus {
  // log(1 + e^x), without overflow.
  float Value(float x) const {
    const float a = std::fabs(x);
    return (x > 0 ? x : (x < 0 ? 0.0f : x)) + LogOnePlus(Exp(-a));
  }
  float Derivative(float x) const { return Logistic(x); }
};

struct Softsign {
  float Value(float x) const { return x / (1.0f + std::fabs(x)); }
  float Derivative(float x) const {
    const float away = 1.0f + std::fabs(x);
    return 1.0f / (away * away);
  }
};

struct ThresholdedRelu {
  float alpha;
  float Value(float x) const { return x <= alpha ? 0.0f : x; }
  float Derivative(float x) const { return x > alpha ? 1.0f : 0.0f; }
};

}  // namespace syncline::scalar

#endif  // SYNCLINE_KERNELS_ELEMENTWISE_SCALAR_FUNCTION_H_
