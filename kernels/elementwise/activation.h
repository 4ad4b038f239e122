#ifndef SYNCLINE_KERNELS_ELEMENTWISE_ACTIVATION_H_
#define SYNCLINE_KERNELS_ELEMENTWISE_ACTIVATION_H_

// Activations and their gradients over n elements. y may be x, and dx may be
// dy. Gradients overwrite dx, or add to it with `accumulate`. NaN stays NaN.

#include <cstdint>

namespace syncline {

void Relu(int64_t n, const float* x, float* y);
void Sigmoid(int64_t n, const float* x, float* y);
void Tanh(int64_t n, const float* x, float* y);
// x * Phi(x); Hendrycks and Gimpel 2016.
void Gelu(int64_t n, const float* x, float* y);
// With Phi(x) = (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2.
void GeluTanh(int64_t n, const float* x, float* y);

// From the output:
void ReluGradient(int64_t n, const float* y, const float* dy, bool accumulate,
                  float* dx);
void SigmoidGradient(int64_t n, const float* y, const float* dy,
                     bool accumulate, float* dx);
void TanhGradient(int64_t n, const float* y, const float* dy, bool accumulate,
                  float* dx);
// From the input:
void GeluGradient(int64_t n, const float* x, const float* dy, bool accumulate,
                  float* dx);
void GeluTanhGradient(int64_t n, const float* x, const float* dy,
                      bool accumulate, float* dx);

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_ELEMENTWISE_ACTIVATION_H_
