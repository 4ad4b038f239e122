#include "kernels/elementwise/pointwise.h"

#include <cmath>

#include "kernels/elementwise/loop.h"
#include "kernels/elementwise/vector_math.h"

namespace syncline {
namespace {

constexpr float kTwoOverRootPi = 1.12837917f;

}  // namespace

void Exp(int64_t n, const float* x, float* y) {
  Emit(n, false, y, [=](int64_t i) { return Exp(x[i]); });
}

void Negate(int64_t n, const float* x, float* y) {
  Emit(n, false, y, [=](int64_t i) { return -x[i]; });
}

void SquareRoot(int64_t n, const float* x, float* y) {
  Emit(n, false, y, [=](int64_t i) { return std::sqrt(x[i]); });
}

void ErrorFunction(int64_t n, const float* x, float* y) {
  Emit(n, false, y, [=](int64_t i) { return Erf(x[i]); });
}

void ExpGradient(int64_t n, const float* y, const float* dy, bool accumulate,
                 float* dx) {
  Emit(n, accumulate, dx, [=](int64_t i) { return dy[i] * y[i]; });
}

void SquareRootGradient(int64_t n, const float* y, const float* dy,
                        bool accumulate, float* dx) {
  Emit(n, accumulate, dx, [=](int64_t i) { return 0.5f * dy[i] / y[i]; });
}

void NegateGradient(int64_t n, const float*, const float* dy, bool accumulate,
                    float* dx) {
  Emit(n, accumulate, dx, [=](int64_t i) { return -dy[i]; });
}

void ErrorFunctionGradient(int64_t n, const float* x, const float* dy,
                           bool accumulate, float* dx) {
  Emit(n, accumulate, dx,
       [=](int64_t i) { return dy[i] * kTwoOverRootPi * Exp(-x[i] * x[i]); });
}

}  // namespace syncline
