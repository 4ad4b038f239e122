#ifndef SYNCLINE_KERNELS_RNN_FUNCTIONS_H_
#define SYNCLINE_KERNELS_RNN_FUNCTIONS_H_

// The functions of kernels/rnn_activation.h, for the compiler of each device.

#include "kernels/elementwise/host_device.h"
#include "kernels/elementwise/pointwise_functions.h"
#include "kernels/elementwise/vector_math.h"
#include "kernels/rnn_activation.h"

namespace syncline {
namespace rnn_function {

struct Affine {
  float alpha;
  float beta;
  SYNCLINE_HOST_DEVICE float Value(float x) const { return alpha * x + beta; }
  SYNCLINE_HOST_DEVICE float Derivative(float) const { return alpha; }
};

struct Rectifier {
  SYNCLINE_HOST_DEVICE float Value(float x) const { return x < 0 ? 0.0f : x; }
  SYNCLINE_HOST_DEVICE float Derivative(float x) const {
    return x > 0 ? 1.0f : 0.0f;
  }
};

struct ScaledTanh {
  float alpha;
  float beta;
  SYNCLINE_HOST_DEVICE float Value(float x) const {
    return alpha * Tanh(beta * x);
  }
  SYNCLINE_HOST_DEVICE float Derivative(float x) const {
    const float y = Tanh(beta * x);
    return alpha * beta * (1.0f - y * y);
  }
};

struct Sigmoidal {
  SYNCLINE_HOST_DEVICE float Value(float x) const { return Logistic(x); }
  SYNCLINE_HOST_DEVICE float Derivative(float x) const {
    const float y = Logistic(x);
    return y * (1.0f - y);
  }
};

}  // namespace rnn_function

// Calls run(function), which has Value and Derivative.
template <typename Run>
SYNCLINE_HOST_DEVICE void WithRnnFunction(const RnnActivation& f, Run run) {
  switch (f.kind) {
    case RnnActivation::Kind::kAffine:
      return run(rnn_function::Affine{f.alpha, f.beta});
    case RnnActivation::Kind::kElu:
      return run(pointwise::Elu{f.alpha});
    case RnnActivation::Kind::kHardSigmoid:
      return run(pointwise::HardSigmoid{f.alpha, f.beta});
    case RnnActivation::Kind::kLeakyRelu:
      return run(pointwise::LeakyRelu{f.alpha});
    case RnnActivation::Kind::kRelu:
      return run(rnn_function::Rectifier());
    case RnnActivation::Kind::kScaledTanh:
      return run(rnn_function::ScaledTanh{f.alpha, f.beta});
    case RnnActivation::Kind::kSigmoid:
      return run(rnn_function::Sigmoidal());
    case RnnActivation::Kind::kSoftplus:
      return run(pointwise::Softplus());
    case RnnActivation::Kind::kSoftsign:
      return run(pointwise::Softsign());
    case RnnActivation::Kind::kTanh:
      return run(rnn_function::ScaledTanh{1.0f, 1.0f});
    case RnnActivation::Kind::kThresholdedRelu:
      return run(pointwise::ThresholdedRelu{f.alpha});
  }
}

SYNCLINE_HOST_DEVICE inline float Clipped(float x, float clip) {
  const float below = x > clip ? clip : x;
  return below < -clip ? -clip : below;
}

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_RNN_FUNCTIONS_H_
