#include "kernels/rnn_activation.h"

#include "kernels/elementwise/loop.h"
#include "kernels/elementwise/pointwise_functions.h"
#include "kernels/elementwise/vector_math.h"

namespace syncline {
namespace {

struct Affine {
  float alpha;
  float beta;
  float Value(float x) const { return alpha * x + beta; }
  float Derivative(float) const { return alpha; }
};

struct Rectifier {
  float Value(float x) const { return x < 0 ? 0.0f : x; }
  float Derivative(float x) const { return x > 0 ? 1.0f : 0.0f; }
};

struct ScaledTanh {
  float alpha;
  float beta;
  float Value(float x) const { return alpha * Tanh(beta * x); }
  float Derivative(float x) const {
    const float y = Tanh(beta * x);
    return alpha * beta * (1.0f - y * y);
  }
};

struct Sigmoidal {
  float Value(float x) const { return Logistic(x); }
  float Derivative(float x) const {
    const float y = Logistic(x);
    return y * (1.0f - y);
  }
};

// Calls run(function), with Value and Derivative.
template <typename Run>
void With(const RnnActivation& f, Run run) {
  switch (f.kind) {
    case RnnActivation::Kind::kAffine:
      return run(Affine{f.alpha, f.beta});
    case RnnActivation::Kind::kElu:
      return run(pointwise::Elu{f.alpha});
    case RnnActivation::Kind::kHardSigmoid:
      return run(pointwise::HardSigmoid{f.alpha, f.beta});
    case RnnActivation::Kind::kLeakyRelu:
      return run(pointwise::LeakyRelu{f.alpha});
    case RnnActivation::Kind::kRelu:
      return run(Rectifier());
    case RnnActivation::Kind::kScaledTanh:
      return run(ScaledTanh{f.alpha, f.beta});
    case RnnActivation::Kind::kSigmoid:
      return run(Sigmoidal());
    case RnnActivation::Kind::kSoftplus:
      return run(pointwise::Softplus());
    case RnnActivation::Kind::kSoftsign:
      return run(pointwise::Softsign());
    case RnnActivation::Kind::kTanh:
      return run(ScaledTanh{1.0f, 1.0f});
    case RnnActivation::Kind::kThresholdedRelu:
      return run(pointwise::ThresholdedRelu{f.alpha});
  }
}

float Clipped(float x, float clip) {
  const float below = x > clip ? clip : x;
  return below < -clip ? -clip : below;
}

}  // namespace

void Apply(const RnnActivation& f, int64_t n, const float* x, float* y) {
  With(f, [=, clip = f.clip](auto function) {
    Emit(n, /*accumulate=*/false, y,
         [=](int64_t i) { return function.Value(Clipped(x[i], clip)); });
  });
}

void ApplyGradient(const RnnActivation& f, int64_t n, const float* x,
                   const float* dy, float* dx) {
  With(f, [=, clip = f.clip](auto function) {
    Emit(n, /*accumulate=*/false, dx, [=](int64_t i) {
      const float inside = x[i] > clip || x[i] < -clip ? 0.0f : 1.0f;
      return dy[i] * inside * function.Derivative(Clipped(x[i], clip));
    });
  });
}

}  // namespace syncline
