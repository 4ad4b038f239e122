#include "kernels/elementwise/activation.h"

#include <cmath>

#include "kernels/elementwise/loop.h"
#include "kernels/elementwise/vector_math.h"

namespace syncline {
namespace {

constexpr float kRootHalf = 0.707106781f;       // sqrt(1/2)
constexpr float kRootTwoOverPi = 0.797884561f;  // sqrt(2/pi)
constexpr float kDensityAtZero = 0.398942280f;  // 1 / sqrt(2 pi)
constexpr float kGeluCubic = 0.044715f;

// e^(-x^2 / 2): the density of the standard normal is kDensityAtZero times
// that.
inline float Bell(float x) { return Exp(-0.5f * x * x); }

// Cumulative distribution of the standard normal, given Bell(x).
inline float Phi(float x, float bell) {
  const float outside = 0.5f * Erfc(std::fabs(x) * kRootHalf, bell);
  return x > 0.0f ? 1.0f - outside : outside;
}

// (1 + tanh(u)) / 2 is Logistic(2 u), which cancels nothing where the tanh is
// near -1: this is 2 u.
inline float GeluTanhInner(float x) {
  return 2.0f * kRootTwoOverPi * (x + kGeluCubic * x * x * x);
}

}  // namespace

void Relu(int64_t n, const float* x, float* y) {
  Emit(n, false, y, [=](int64_t i) { return x[i] < 0.0f ? 0.0f : x[i]; });
}

void Sigmoid(int64_t n, const float* x, float* y) {
  Emit(n, false, y, [=](int64_t i) { return Logistic(x[i]); });
}

void Tanh(int64_t n, const float* x, float* y) {
  Emit(n, false, y, [=](int64_t i) { return Tanh(x[i]); });
}

void Gelu(int64_t n, const float* x, float* y) {
  Emit(n, false, y, [=](int64_t i) { return x[i] * Phi(x[i], Bell(x[i])); });
}

void GeluTanh(int64_t n, const float* x, float* y) {
  Emit(n, false, y,
       [=](int64_t i) { return x[i] * Logistic(GeluTanhInner(x[i])); });
}

void ReluGradient(int64_t n, const float* y, const float* dy, bool accumulate,
                  float* dx) {
  Emit(n, accumulate, dx,
       [=](int64_t i) { return y[i] > 0.0f ? dy[i] : 0.0f; });
}

void SigmoidGradient(int64_t n, const float* y, const float* dy,
                     bool accumulate, float* dx) {
  Emit(n, accumulate, dx,
       [=](int64_t i) { return dy[i] * y[i] * (1.0f - y[i]); });
}

void TanhGradient(int64_t n, const float* y, const float* dy, bool accumulate,
                  float* dx) {
  Emit(n, accumulate, dx,
       [=](int64_t i) { return dy[i] * (1.0f - y[i] * y[i]); });
}

void GeluGradient(int64_t n, const float* x, const float* dy, bool accumulate,
                  float* dx) {
  Emit(n, accumulate, dx, [=](int64_t i) {
    const float bell = Bell(x[i]);
    return dy[i] * (Phi(x[i], bell) + x[i] * (kDensityAtZero * bell));
  });
}

void GeluTanhGradient(int64_t n, const float* x, const float* dy,
                      bool accumulate, float* dx) {
  Emit(n, accumulate, dx, [=](int64_t i) {
    const float u = GeluTanhInner(x[i]);
    // The gate is 1 / (1 + e^-u), its derivative e^-|u| / (1 + e^-|u|)^2.
    const float power = Exp(-std::fabs(u));
    const float share = 1.0f / (1.0f + power);
    const float gate = u < 0.0f ? power * share : share;
    const float inner =
        2.0f * kRootTwoOverPi * (1.0f + 3.0f * kGeluCubic * x[i] * x[i]);
    return dy[i] * (gate + x[i] * (power * share * share) * inner);
  });
}

}  // namespace syncline
